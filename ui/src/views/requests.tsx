/** Requests one by one: as they end, and by a search of the log store. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { get, url } from '../api';
import { useWatched } from '../cell';
import { useData } from '../data';
import { bytes, clock, count, milliseconds, plural, text } from '../format';
import { AnswerTable } from '../parts/answer';
import { filterOf, Filters, filtersOf } from '../parts/filters';
import { ProblemBox } from '../parts/problem';
import { Table } from '../parts/table';
import { Tabs } from '../parts/tabs';
import { WhyButton } from '../parts/why';
import { altered, go, href, place } from '../place';
import { Latest } from '../ring';
import { Stream } from '../stream';
import type { Cell, LogAnswer, LoggedRequest } from '../types';

const TABS = [
    { name: 'tail', title: 'Live' },
    { name: 'search', title: 'Search' },
] as const;

/** Rows on the screen, and as many in memory. */
const KEPT = 200;
const DRAW_EVERY_MS = 500;

export function Requests() {
    const { query } = useWatched(place);
    const tab = query.has('text') ? 'search' : 'tail';
    const choose = (name: string) => go(href('requests', [], search(query, name === 'search' ? '' : null)));
    return (
        <>
            <h1>Requests</h1>
            <Tabs label="Requests" tabs={TABS} current={tab} choose={choose} controls="requests-list" />
            <Filters view="requests" query={query} />
            <div id="requests-list" role="tabpanel" aria-labelledby={`tab-${tab}`}>
                {tab === 'tail' ? <Tail query={query} /> : <Search query={query} />}
            </div>
        </>
    );
}

/** A search for an empty text has the newest requests. */
function search(query: URLSearchParams, words: string | null): URLSearchParams {
    const next = altered(query, { text: null });
    if (words !== null) next.set('text', words);
    return next;
}

interface TailRow {
    /** A number of this page's own: not every logged line has an id. */
    number: number;
    request: LoggedRequest;
}

function Tail({ query }: { query: URLSearchParams }) {
    const address = url('/v1/logs/tail', filtersOf(query));
    const [rows, setRows] = useState<readonly TailRow[]>([]);
    const [lost, setLost] = useState(0);
    const [paused, setPaused] = useState(false);
    const stopped = useRef(false);
    stopped.current = paused;
    const stream = useMemo(() => {
        const kept = new Latest<TailRow>(KEPT);
        let waiting: TailRow[] = [];
        let number = 0;
        const made = new Stream(
            address,
            (name, data) => {
                if (name === 'lost') setLost((before) => before + lostOf(data));
                else if (name === 'request' && !stopped.current) {
                    waiting.push({ number: (number += 1), request: data as LoggedRequest });
                    // Bounds the requests between two drawings: older ones would not be on the screen.
                    if (waiting.length > 2 * KEPT) waiting = waiting.slice(-KEPT);
                }
            },
            { pausesHidden: true },
        );
        const draw = () => {
            if (waiting.length === 0) return;
            kept.add(waiting);
            waiting = [];
            setRows(kept.items);
        };
        return { made, draw };
    }, [address]);
    useEffect(() => {
        setRows([]);
        setLost(0);
        stream.made.open();
        const timer = setInterval(stream.draw, DRAW_EVERY_MS);
        return () => {
            stream.made.close();
            clearInterval(timer);
        };
    }, [stream]);
    const state = useWatched(stream.made.state);
    const problem = useWatched(stream.made.problem);
    return (
        <>
            <p class="controls">
                <button type="button" aria-pressed={paused} onClick={() => setPaused(!paused)}>
                    {paused ? 'Go on' : 'Pause'}
                </button>
                <span class="dim">
                    {paused ? 'paused' : state === 'live' ? 'as they end' : state}
                    {lost > 0 && `; ${plural(lost, 'request')} not shown, because they came faster than the page takes them`}
                </span>
            </p>
            {problem && state === 'away' && <ProblemBox problem={problem} />}
            <Table
                caption="The latest requests"
                captionHidden
                rows={rows}
                rowKey={({ number }) => number}
                rowClass={({ request }) => level(request)}
                empty="Nothing has ended yet."
                columns={[
                    {
                        key: 'time',
                        label: 'Time',
                        head: true,
                        cell: ({ request }) => <Opened request={request}>{clock(field(request, 'time'))}</Opened>,
                    },
                    { key: 'client', label: 'Client', minor: true, cell: ({ request }) => text(request.client) },
                    { key: 'status', label: 'Status', numeric: true, cell: ({ request }) => text(request.status) },
                    { key: 'method', label: 'Method', minor: true, cell: ({ request }) => text(request.method) },
                    { key: 'host', label: 'Host', minor: true, cell: ({ request }) => text(request.host ?? request.sni) },
                    { key: 'path', label: 'Path', cell: ({ request }) => <span class="long">{pathOf(request)}</span> },
                    { key: 'bytes', label: 'Bytes', numeric: true, minor: true, cell: ({ request }) => bytes(size(request)) },
                    { key: 'time taken', label: 'Took', numeric: true, cell: ({ request }) => milliseconds(took(request)) },
                    { key: 'cause', label: 'Cause', minor: true, cell: ({ request }) => <Cause request={request} /> },
                ]}
            />
        </>
    );
}

function lostOf(data: unknown): number {
    if (typeof data === 'number') return data;
    const { lost, count } = (data ?? {}) as Record<string, unknown>;
    return Number(lost ?? count) || 0;
}

function field(request: LoggedRequest, name: string): string | null {
    const value = request[name];
    return typeof value === 'string' ? value : null;
}

function idOf(request: LoggedRequest): string | null {
    return field(request, 'id') ?? field(request, 'request_id');
}

function Opened({ request, children }: { request: LoggedRequest; children: string }) {
    const id = idOf(request);
    return id === null ? <>{children}</> : <a href={href('requests', [id])}>{children}</a>;
}

function pathOf(request: LoggedRequest): string {
    const query = field(request, 'query');
    return query === null || query === '' ? text(request.path) : `${text(request.path)}?${query}`;
}

export function took(request: LoggedRequest): number | null {
    for (const [name, divisor] of [['total_us', 1000], ['duration_us', 1000], ['total_ms', 1], ['duration_ms', 1]] as const) {
        if (typeof request[name] === 'number') return (request[name] as number) / divisor;
    }
    return null;
}

function size(request: LoggedRequest): number | null {
    const value = request.bytes_to_client ?? request.bytes;
    return typeof value === 'number' ? value : null;
}

function level(request: LoggedRequest): string | undefined {
    const { status, cause } = request;
    // A connection of a `tcp` listener has no status.
    if (typeof status !== 'number') return cause === null || cause === undefined ? undefined : 'warn';
    if (status >= 500) return 'bad';
    return status >= 400 || status === 0 ? 'warn' : undefined;
}

function Cause({ request }: { request: LoggedRequest }) {
    const cause = field(request, 'cause');
    const id = idOf(request);
    const ordinary = cause === null || cause === 'completed';
    return (
        <>
            {ordinary ? '' : cause.replace(/_/g, ' ')}{' '}
            {level(request) !== undefined && id !== null && (
                <WhyButton question={{ heading: `Why did this request end with ${text(request.status)}?`, query: { about: 'request', request: id } }} />
            )}
        </>
    );
}

function Search({ query }: { query: URLSearchParams }) {
    const words = query.get('text') ?? '';
    const asked = { limit: 100, since: query.get('since') ?? '24h', ...filtersOf(query) };
    const path = words === '' ? url('/v1/logs/requests', asked) : url('/v1/logs/search', { text: words, ...asked });
    const { value, problem, loading, reload } = useData(path, (signal) => get<LogAnswer>(path, {}, signal));
    const submit = (event: SubmitEvent) => {
        event.preventDefault();
        const data = new FormData(event.currentTarget as HTMLFormElement);
        const next = search(query, String(data.get('text') ?? ''));
        next.set('since', String(data.get('since')));
        const target = href('requests', [], next);
        // The same question again: there may be newer requests.
        if (target === location.hash) reload();
        else go(target);
    };
    const alter = (name: string, value: string) => go(href('requests', [], altered(query, { [name]: value })));
    return (
        <>
            <form class="controls" role="search" onSubmit={submit}>
                <label>
                    Text in path, query, referrer or agent
                    <input type="search" name="text" defaultValue={words} spellcheck={false} autocapitalize="none" />
                </label>
                <label>
                    Since
                    <select name="since" defaultValue={query.get('since') ?? '24h'}>
                        <option value="1h">1 hour ago</option>
                        <option value="24h">24 hours ago</option>
                        <option value="7d">7 days ago</option>
                        <option value="90d">90 days ago</option>
                    </select>
                </label>
                <button type="submit" class="primary">
                    Search
                </button>
                {value && !loading && <span class="dim">{count(value.rows.length)} found</span>}
            </form>
            <div aria-busy={loading}>
                {problem && <ProblemBox problem={problem} retry={reload} />}
                {!value && !problem && <p class="dim">Asking the log store…</p>}
                {value && <Found answer={value} alter={alter} />}
            </div>
        </>
    );
}

/** The id is the address of the link in the first column, and no column of its own. */
function Found({ answer, alter }: { answer: LogAnswer; alter: (name: string, value: string) => void }) {
    const at = answer.columns.findIndex(({ name }) => name === 'request_id' || name === 'id');
    const ids = new Map<Cell[], Cell>();
    const rest = <T,>(all: readonly T[]): T[] => all.filter((_, index) => index !== at);
    const rows = answer.rows.map((row) => {
        const kept = rest(row);
        ids.set(kept, row[at] ?? null);
        return kept;
    });
    const link = (row: Cell[]) => {
        const id = ids.get(row) ?? null;
        return id === null ? null : href('requests', [String(id)]);
    };
    return (
        <AnswerTable
            caption="Requests that were found"
            answer={{ ...answer, columns: rest(answer.columns), rows }}
            filterOf={filterOf}
            filter={alter}
            link={link}
            empty="No request has this text."
        />
    );
}
