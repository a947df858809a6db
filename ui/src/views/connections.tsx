/** The connections that are open, in pages, and an end for one or for some. */
import { useEffect, useState } from 'preact/hooks';
import { ask, get, segment, url } from '../api';
import { useWatched } from '../cell';
import { useData } from '../data';
import { bytes, count, plural, seconds, text } from '../format';
import { Question } from '../parts/dialog';
import { ProblemBox } from '../parts/problem';
import { Table } from '../parts/table';
import { WhyButton } from '../parts/why';
import { altered, go, href, place } from '../place';
import type { Connection } from '../types';

const FILTERS = ['client', 'name', 'route', 'listener', 'older', 'larger'] as const;
const HINTS: Record<(typeof FILTERS)[number], string> = {
    client: 'address or network',
    name: 'example.org or *.example.org',
    route: 'name of a route',
    listener: 'name of a listener',
    older: '5m, 2h, 1d',
    larger: '1MiB',
};
/** Connections on a page. */
const PAGE = 200;

interface Page {
    connections: Connection[];
    next: string | null;
}

export function Connections() {
    const { query } = useWatched(place);
    const filter = Object.fromEntries(FILTERS.map((name) => [name, query.get(name)]).filter(([, value]) => value)) as Record<string, string>;
    const key = JSON.stringify(filter);
    /** The cursors of this page and those before. */
    const [trail, setTrail] = useState<string[]>([]);
    useEffect(() => setTrail([]), [key]);
    const after = trail.at(-1) ?? null;
    const path = url('/v1/connections', { limit: PAGE, after, ...filter });
    const { value, problem, loading, reload } = useData(path, (signal) => get<Page>(path, {}, signal), { on: ['closed'] });
    const [closing, setClosing] = useState<Connection | 'all' | null>(null);
    const filtered = Object.keys(filter).length > 0;
    return (
        <>
            <h1>Connections</h1>
            <Filter query={query} filter={filter} />
            <p class="controls">
                <button type="button" onClick={reload}>
                    Read again
                </button>
                {filtered && (
                    <button type="button" class="danger" onClick={() => setClosing('all')}>
                        Close all of these…
                    </button>
                )}
                {value && (
                    <span class="dim" aria-busy={loading}>
                        {plural(value.connections.length, 'connection')} on this page
                    </span>
                )}
            </p>
            {problem && <ProblemBox problem={problem} retry={reload} />}
            <ConnectionTable rows={value?.connections ?? []} loaded={value !== null} close={setClosing} />
            <p class="buttons">
                {trail.length > 0 && (
                    <button type="button" onClick={() => setTrail(trail.slice(0, -1))}>
                        Page before
                    </button>
                )}
                {value?.next && (
                    <button type="button" onClick={() => setTrail([...trail, value.next as string])}>
                        Next page
                    </button>
                )}
            </p>
            {closing && <CloseQuestion which={closing} filter={filter} close={() => (setClosing(null), reload())} />}
        </>
    );
}

function Filter({ query, filter }: { query: URLSearchParams; filter: Record<string, string> }) {
    const submit = (event: SubmitEvent) => {
        event.preventDefault();
        const data = new FormData(event.currentTarget as HTMLFormElement);
        const changes = Object.fromEntries(FILTERS.map((name) => [name, String(data.get(name) ?? '').trim() || null]));
        go(href('connections', [], altered(query, changes)));
    };
    return (
        <form class="controls fields" onSubmit={submit} key={JSON.stringify(filter)}>
            {FILTERS.map((name) => (
                <label key={name}>
                    {name}
                    <input name={name} defaultValue={filter[name] ?? ''} placeholder={HINTS[name]} spellcheck={false} autocapitalize="none" autocomplete="off" />
                </label>
            ))}
            <button type="submit">Filter</button>
        </form>
    );
}

interface ConnectionTableProps {
    rows: readonly Connection[];
    loaded: boolean;
    close: (which: Connection) => void;
}

function ConnectionTable({ rows, loaded, close }: ConnectionTableProps) {
    return (
        <Table
            caption="Open connections"
            captionHidden
            rows={rows}
            rowKey={({ id }) => id}
            empty={loaded ? 'No connection matches.' : 'Asking the workers…'}
            columns={[
                { key: 'client', label: 'Client', head: true, by: ({ client }) => client, cell: ({ client }) => client },
                { key: 'name', label: 'Name', by: ({ name }) => name, cell: ({ name }) => <span class="long">{text(name)}</span> },
                { key: 'protocol', label: 'Protocol', minor: true, by: ({ protocol }) => protocol, cell: ({ protocol, tls }) => [protocol, tls].filter(Boolean).join(' ') },
                { key: 'age', label: 'Age', numeric: true, by: ({ age_s }) => age_s, cell: ({ age_s }) => seconds(age_s) },
                { key: 'in', label: 'In', numeric: true, minor: true, by: ({ bytes_from_client }) => bytes_from_client, cell: ({ bytes_from_client }) => bytes(bytes_from_client) },
                { key: 'out', label: 'Out', numeric: true, by: ({ bytes_to_client }) => bytes_to_client, cell: ({ bytes_to_client }) => bytes(bytes_to_client) },
                { key: 'requests', label: 'Requests', numeric: true, minor: true, by: ({ requests }) => requests.begun, cell: ({ requests }) => count(requests.begun) },
                { key: 'route', label: 'Route', minor: true, by: ({ route }) => route, cell: ({ route }) => text(route) },
                { key: 'server', label: 'Server', minor: true, by: ({ server }) => server, cell: ({ server }) => text(server) },
                {
                    key: 'actions',
                    label: 'Actions',
                    cell: (one) => (
                        <span class="actions">
                            <WhyButton question={{ heading: `Why is ${address(one)} here?`, query: { about: 'client', client: address(one) } }} />
                            <button type="button" onClick={() => close(one)} aria-label={`Close the connection of ${one.client}`}>
                                Close
                            </button>
                        </span>
                    ),
                },
            ]}
        />
    );
}

/** The client's address without its port. */
function address({ client }: Connection): string {
    return client.replace(/^\[(.*)\]:\d+$/, '$1').replace(/^([\d.]+):\d+$/, '$1');
}

interface CloseQuestionProps {
    which: Connection | 'all';
    filter: Record<string, string>;
    close: () => void;
}

function CloseQuestion({ which, filter, close }: CloseQuestionProps) {
    const one = which === 'all' ? null : which;
    const path = one ? `/v1/connections/${segment(one.id)}` : url('/v1/connections', filter);
    const run = async () => {
        const { value } = await ask<{ closed: number }>(path, { method: 'DELETE' });
        return `Closed ${plural(value.closed, 'connection')}`;
    };
    const words = Object.entries(filter).map(([name, value]) => `${name} ${value}`);
    return (
        <Question title={one ? `Close the connection of ${one.client}?` : 'Close all connections of this filter?'} action="Close" danger run={run} close={close}>
            <p>
                {one
                    ? `It is ${seconds(one.age_s)} old, and has ${plural(one.requests.open, 'open request')}.`
                    : `Every connection with ${words.join(', ')}, on all pages.`}{' '}
                A response that is under way breaks off. The client may connect again.
            </p>
        </Question>
    );
}
