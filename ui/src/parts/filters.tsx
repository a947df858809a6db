/** Filters of requests: each set one is a chip that a click takes away. */
import { altered, go, href } from '../place';
import { words } from '../format';

export const FILTERS = ['host', 'path', 'status', 'method', 'client', 'referrer', 'bot'] as const;

export function filtersOf(query: URLSearchParams): Record<string, string> {
    const set: Record<string, string> = {};
    for (const name of FILTERS) {
        const value = query.get(name);
        if (value) set[name] = value;
    }
    return set;
}

/** The filter that a column of an answer is. */
export function filterOf(column: string): string | null {
    switch (column) {
        case 'host':
        case 'status':
        case 'client':
        case 'method':
        case 'path':
        case 'referrer':
            return column;
        case 'page':
            return 'path';
        case 'network':
            return 'client';
        default:
            return null;
    }
}

export function Filters({ view, rest = [], query }: { view: string; rest?: string[]; query: URLSearchParams }) {
    const set = filtersOf(query);
    const alter = (changes: Record<string, string | null>) => go(href(view, rest, altered(query, changes)));
    const submit = (event: SubmitEvent) => {
        event.preventDefault();
        const form = event.currentTarget as HTMLFormElement;
        const data = new FormData(form);
        const value = String(data.get('value') ?? '').trim();
        if (value !== '') alter({ [String(data.get('name'))]: value });
        form.reset();
    };
    return (
        <div class="filters">
            {Object.entries(set).map(([name, value]) => (
                <button key={name} type="button" class="chip" onClick={() => alter({ [name]: null })} aria-label={`Remove the filter ${name} ${value}`}>
                    {name}: {value} <span aria-hidden="true">×</span>
                </button>
            ))}
            <form onSubmit={submit}>
                <label>
                    <span class="hidden">Filter by</span>
                    <select name="name">
                        {FILTERS.map((name) => (
                            <option key={name} value={name}>
                                {words(name)}
                            </option>
                        ))}
                    </select>
                </label>
                <label>
                    <span class="hidden">Value; * matches any text</span>
                    <input name="value" placeholder="value, * for any text" spellcheck={false} autocapitalize="none" autocomplete="off" />
                </label>
                <button type="submit">Filter</button>
            </form>
        </div>
    );
}
