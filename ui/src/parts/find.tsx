/** A field that narrows a list on the page; its text is part of the address. */
import { useEffect, useRef } from 'preact/hooks';
import { altered, href, place } from '../place';

export function Find({ view, query, label }: { view: string; query: URLSearchParams; label: string }) {
    const field = useRef<HTMLInputElement>(null);
    const find = query.get('find') ?? '';
    useEffect(() => {
        // A link has set another text than the one that was typed.
        if (field.current && field.current.value !== find) field.current.value = find;
    }, [find]);
    const onInput = (event: Event) => {
        const { value } = event.currentTarget as HTMLInputElement;
        const next = altered(query, { find: value });
        // Typing makes no history of its own.
        window.history.replaceState(null, '', href(view, [], next));
        place.set({ view, rest: [], query: next });
    };
    return (
        <label class="find">
            {label}
            <input ref={field} type="search" defaultValue={find} onInput={onInput} spellcheck={false} autocapitalize="none" />
        </label>
    );
}

export function matches(find: string, values: readonly unknown[]): boolean {
    const wanted = find.trim().toLowerCase();
    return wanted === '' || values.some((value) => JSON.stringify(value ?? '').toLowerCase().includes(wanted));
}
