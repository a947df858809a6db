/** The past, from the log store: who asked for what, and how much it was. */
import { useMemo } from 'preact/hooks';
import { get, url } from '../api';
import { useWatched } from '../cell';
import { useData } from '../data';
import { bytes, rate } from '../format';
import { AnswerTable } from '../parts/answer';
import { Chart } from '../parts/chart';
import { filterOf, Filters, filtersOf } from '../parts/filters';
import { ProblemBox } from '../parts/problem';
import { Tabs } from '../parts/tabs';
import { altered, go, href, place } from '../place';
import type { LogAnswer } from '../types';
import { evenly } from '../evenly';
import type { Series } from '../ring';

const QUESTIONS = [
    { name: 'traffic', title: 'Over time' },
    { name: 'hosts', title: 'Hosts' },
    { name: 'pages', title: 'Pages' },
    { name: 'clients', title: 'Clients' },
    { name: 'networks', title: 'Networks' },
    { name: 'referrers', title: 'Referrers' },
    { name: 'countries', title: 'Countries' },
    { name: 'cities', title: 'Cities' },
    { name: 'agents', title: 'Agents' },
    { name: 'bots', title: 'Bots' },
    { name: 'status', title: 'Status' },
    { name: 'errors', title: 'Errors' },
    { name: 'slow', title: 'Slow' },
    { name: 'visitors', title: 'Visitors' },
] as const;

const RANGES = [
    ['1h', 'last hour'],
    ['24h', 'last 24 hours'],
    ['today', 'today (UTC)'],
    ['7d', 'last 7 days'],
    ['30d', 'last 30 days'],
    ['90d', 'last 90 days'],
    ['365d', 'last year'],
] as const;

/** Lists that the period before can be set beside. */
const COMPARED = new Set(['pages', 'referrers', 'hosts', 'clients', 'status', 'agents', 'networks', 'traffic']);
const ORDERED = new Set(['pages', 'referrers', 'hosts', 'clients', 'status', 'agents', 'bots', 'networks', 'countries', 'cities', 'errors']);

export function Traffic() {
    const { query } = useWatched(place);
    const asked = query.get('what') ?? 'traffic';
    const what = QUESTIONS.some(({ name }) => name === asked) ? asked : 'traffic';
    const compare = query.has('compare') && COMPARED.has(what);
    const path = pathOf(what, compare, query);
    const { value, problem, loading, reload } = useData(path, (signal) => get<LogAnswer>(path, {}, signal));
    const alter = (changes: Record<string, string | null>) => go(href('traffic', [], altered(query, changes)));
    const title = QUESTIONS.find(({ name }) => name === what)?.title ?? '';
    return (
        <>
            <h1>Traffic</h1>
            <Tabs label="Questions" tabs={QUESTIONS} current={what} choose={(next) => alter({ what: next })} controls="traffic-answer" />
            <div class="controls">
                <Range query={query} alter={alter} />
                {ORDERED.has(what) && (
                    <label>
                        Order by
                        <select value={query.get('by') ?? 'requests'} onChange={(event) => alter({ by: event.currentTarget.value })}>
                            <option value="requests">requests</option>
                            <option value="bytes">bytes out</option>
                        </select>
                    </label>
                )}
                {COMPARED.has(what) && (
                    <label class="check">
                        <input type="checkbox" checked={compare} onChange={() => alter({ compare: compare ? null : '1' })} />
                        beside the period before
                    </label>
                )}
            </div>
            <Filters view="traffic" query={query} />
            <div id="traffic-answer" role="tabpanel" aria-labelledby={`tab-${what}`} aria-busy={loading}>
                {problem && <ProblemBox problem={problem} retry={reload} />}
                {!value && !problem && <p class="dim">Asking the log store…</p>}
                {value && what === 'traffic' && !compare && <OverTime answer={value} />}
                {value && (
                    <AnswerTable
                        caption={title}
                        answer={value}
                        filterOf={filterOf}
                        bar={ORDERED.has(what) ? (query.get('by') ?? 'requests') : 'requests'}
                        filter={(name, text) => alter({ [name]: text })}
                        empty="No request matches."
                    />
                )}
            </div>
        </>
    );
}

function pathOf(what: string, compare: boolean, query: URLSearchParams): string {
    const filters: Record<string, string> = filtersOf(query);
    const common = { ...filters, since: query.get('since') ?? '24h', until: query.get('until') };
    const by = ORDERED.has(what) ? query.get('by') : null;
    if (compare) return url('/v1/logs/compare', { ...(what === 'traffic' ? {} : { what, by }), ...common });
    if (what === 'traffic' || what === 'visitors') return url(`/v1/logs/${what}`, common);
    if (what === 'bots') return url('/v1/logs/top', { what: 'agents', by, limit: 50, ...common, bot: 'yes' });
    return url('/v1/logs/top', { what, by, limit: 50, ...common });
}

interface RangeProps {
    query: URLSearchParams;
    alter: (changes: Record<string, string | null>) => void;
}

function Range({ query, alter }: RangeProps) {
    const since = query.get('since') ?? '24h';
    const own = query.has('until') || !RANGES.some(([name]) => name === since);
    const submit = (event: SubmitEvent) => {
        event.preventDefault();
        const data = new FormData(event.currentTarget as HTMLFormElement);
        alter({ since: absolute(data.get('since')), until: absolute(data.get('until')) });
    };
    return (
        <>
            <label>
                Range
                <select
                    value={own ? 'own' : since}
                    onChange={(event) => {
                        const { value } = event.currentTarget;
                        alter(value === 'own' ? { since: yesterday(), until: utc(new Date()) } : { since: value, until: null });
                    }}
                >
                    {RANGES.map(([name, title]) => (
                        <option key={name} value={name}>
                            {title}
                        </option>
                    ))}
                    <option value="own">from … to …</option>
                </select>
            </label>
            {own && (
                <form class="inline" onSubmit={submit}>
                    <label>
                        from <input type="datetime-local" name="since" defaultValue={minute(since)} required />
                    </label>
                    <label>
                        to <input type="datetime-local" name="until" defaultValue={minute(query.get('until'))} />
                    </label>
                    <button type="submit">Show</button>
                </form>
            )}
        </>
    );
}

/** A time as the input field has it, in the browser's zone; nothing for a range such as 24h. */
function minute(time: string | null): string {
    const date = new Date(/^\d{4}-\d\d-\d\dT\d\d:\d\d$/.test(time ?? '') ? `${time}Z` : '');
    return Number.isNaN(date.getTime()) ? '' : new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** The time of an input field in UTC, as the API takes times. */
function absolute(time: FormDataEntryValue | null): string | null {
    const date = new Date(String(time ?? ''));
    return Number.isNaN(date.getTime()) ? null : utc(date);
}

function yesterday(): string {
    return utc(new Date(Date.now() - 86_400_000));
}

function utc(date: Date): string {
    return date.toISOString().slice(0, 16);
}

function OverTime({ answer }: { answer: LogAnswer }) {
    const drawn = useMemo(() => {
        const at = (name: string) => answer.columns.findIndex((column) => column.name === name);
        const [time, requests, sent] = [at('time'), at('requests'), at('bytes')];
        const series = (column: number): Series => answer.rows.map((row) => (typeof row[column] === 'number' ? (row[column] as number) : null));
        const times = answer.rows.map((row) => seconds(row[time]));
        const filled = evenly(times, [series(requests), series(sent)]);
        return { requests: [filled[0] ?? [], filled[1] ?? []], bytes: [filled[0] ?? [], filled[2] ?? []], any: time !== -1 && answer.rows.length > 1 };
    }, [answer]);
    if (!drawn.any) return null;
    return (
        <div class="charts two">
            <Chart title="Requests" curves={[{ label: 'requests', colour: 'good', fill: true }]} data={drawn.requests} show={rate} height={150} />
            <Chart title="Bytes out" curves={[{ label: 'bytes', colour: 'calm', fill: true }]} data={drawn.bytes} show={bytes} binary height={150} />
        </div>
    );
}

function seconds(value: unknown): number | null {
    if (typeof value === 'number') return value;
    const time = typeof value === 'string' ? Date.parse(value) : NaN;
    return Number.isNaN(time) ? null : time / 1000;
}
