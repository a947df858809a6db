/** Backends and their servers: health and why, weight, drain and enable. */
import { useState } from 'preact/hooks';
import { get } from '../api';
import { useWatched } from '../cell';
import { useData } from '../data';
import { count, rate, text } from '../format';
import { figures } from '../live';
import { Find, matches } from '../parts/find';
import { ProblemBox } from '../parts/problem';
import { Table, type TableColumn } from '../parts/table';
import { WhyButton } from '../parts/why';
import { place } from '../place';
import { ServerQuestion, type ServerAction } from './server-question';
import type { Backend, Server, ServerFigure } from '../types';

interface Asked {
    backend: Backend;
    server: Server;
    action: ServerAction;
}

export function Backends() {
    const { query } = useWatched(place);
    const find = query.get('find') ?? '';
    const { value, problem, reload } = useData('backends', (signal) => get<{ backends: Backend[] }>('/v1/backends', {}, signal), {
        on: ['server', 'change'],
        everyMs: 5000,
    });
    const [asked, setAsked] = useState<Asked | null>(null);
    const now = useWatched(figures);
    const live = new Map<string, ServerFigure>();
    for (const { backend, servers } of now?.backends ?? []) {
        for (const server of servers) live.set(`${backend} ${server.server}`, server);
    }
    const shown = (value?.backends ?? []).filter(({ name, servers }) => matches(find, [name, ...servers.map((server) => server.name)]));
    return (
        <>
            <h1>Backends</h1>
            <Find view="backends" query={query} label="Find a backend or a server" />
            {problem && <ProblemBox problem={problem} retry={reload} />}
            {!value && !problem && <p class="dim">Reading…</p>}
            {value && shown.length === 0 && <p class="dim">No backend matches.</p>}
            {shown.map((backend) => (
                <section key={backend.name}>
                    <h2>
                        {backend.name} <small>{settings(backend)}</small>
                    </h2>
                    <Table
                        caption={`Servers of ${backend.name}`}
                        captionHidden
                        rows={backend.servers}
                        rowKey={({ name }, at) => `${name} ${at}`}
                        rowClass={({ state }) => level(state)}
                        empty="No servers."
                        columns={columns(backend, live, setAsked)}
                    />
                </section>
            ))}
            {asked && <ServerQuestion {...asked} close={() => (setAsked(null), reload())} />}
        </>
    );
}

function settings({ origin, config }: Backend): string {
    const balance = config?.balance;
    return [typeof balance === 'string' ? balance : null, config?.health ? 'health checks' : null, origin].filter(Boolean).join(' · ');
}

export function level(state: string): string | undefined {
    if (state === 'down' || state === 'ejected' || state === 'unresolved') return 'bad';
    return state === 'up' ? undefined : 'warn';
}

function columns(backend: Backend, live: ReadonlyMap<string, ServerFigure>, ask: (asked: Asked) => void): TableColumn<Server>[] {
    const of = ({ name }: Server) => live.get(`${backend.name} ${name}`);
    const button = (server: Server, action: ServerAction, word: string) => (
        <button type="button" onClick={() => ask({ backend, server, action })} aria-label={`${word} ${server.name}`}>
            {word}
        </button>
    );
    return [
        { key: 'server', label: 'Server', head: true, by: ({ name }) => name, cell: ({ name, addresses }) => <Name name={name} addresses={addresses} /> },
        {
            key: 'state',
            label: 'State',
            by: ({ state }) => state,
            cell: ({ name, state }) => (
                <>
                    <span class={`state ${level(state) ?? 'good'}`}>{state}</span>{' '}
                    {level(state) === 'bad' && (
                        <WhyButton question={{ heading: `Why is ${name} ${state}?`, query: { about: '502', backend: backend.name } }} />
                    )}
                </>
            ),
        },
        { key: 'reason', label: 'Reason', minor: true, cell: ({ why }) => <span class="long">{why}</span> },
        { key: 'weight', label: 'Weight', numeric: true, by: ({ weight }) => weight, cell: ({ weight, backup }) => `${weight}${backup ? ' backup' : ''}` },
        { key: 'active', label: 'Active', numeric: true, by: ({ active }) => active, cell: (server) => count(of(server)?.active ?? server.active) },
        {
            key: 'requests',
            label: 'Requests/s',
            numeric: true,
            by: (server) => of(server)?.requests_per_second ?? null,
            cell: (server) => rate(of(server)?.requests_per_second),
        },
        {
            key: 'actions',
            label: 'Change',
            cell: (server) => (
                <span class="actions">
                    {server.state === 'draining' || server.state === 'disabled'
                        ? button(server, 'enable', 'Enable')
                        : button(server, 'drain', 'Drain')}
                    {server.state !== 'disabled' && button(server, 'disable', 'Disable')}
                    {button(server, 'weight', 'Weight')}
                </span>
            ),
        },
    ];
}

function Name({ name, addresses }: { name: string; addresses: readonly string[] }) {
    const other = addresses.filter((address) => address !== name);
    return (
        <>
            {name}
            {other.length > 0 && <small>{text(other)}</small>}
        </>
    );
}
