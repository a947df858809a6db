/** Listeners and routes: what leads where. */
import { get } from '../api';
import { useWatched } from '../cell';
import { useData } from '../data';
import { milliseconds, rate, text } from '../format';
import { figures } from '../live';
import { Find, matches } from '../parts/find';
import { ProblemBox } from '../parts/problem';
import { Table } from '../parts/table';
import { WhyButton } from '../parts/why';
import { href, place } from '../place';
import type { Item, Keys, Listener, RouteFigure } from '../types';

const ON = { on: ['change'], everyMs: 60_000 };

/** Keys that say where a route leads; the others are its settings. */
const TARGETS = ['backend', 'server', 'servers', 'root', 'redirect', 'respond', 'passthrough'] as const;
const MATCHES = new Set<string>([...TARGETS, 'host', 'path', 'listener', 'alpn']);

export function Routes() {
    const { query } = useWatched(place);
    const find = query.get('find') ?? '';
    const routes = useData('routes', (signal) => get<{ routes: Item[] }>('/v1/routes', {}, signal), ON);
    const listeners = useData('listeners', (signal) => get<{ listeners: Listener[] }>('/v1/listeners', {}, signal), ON);
    const now = useWatched(figures);
    const live = new Map((now?.routes ?? []).map((figure) => [figure.route, figure]));
    const health = new Map((now?.backends ?? []).map(({ backend, servers }) => [backend, servers.map(({ state }) => state)]));
    const shown = (routes.value?.routes ?? []).filter((route) => matches(find, [route.name, ...Object.values(route.config ?? {})]));
    return (
        <>
            <h1>Routes</h1>
            <Find view="routes" query={query} label="Find a route" />
            {routes.problem && <ProblemBox problem={routes.problem} retry={routes.reload} />}
            <RouteTable routes={shown} live={live} health={health} loaded={routes.value !== null} />
            <h2>Listeners</h2>
            {listeners.problem && <ProblemBox problem={listeners.problem} retry={listeners.reload} />}
            <Table
                caption="Listeners"
                captionHidden
                rows={listeners.value?.listeners ?? []}
                rowKey={({ name }) => name}
                empty={listeners.value ? 'There is no listener.' : 'Reading…'}
                columns={[
                    { key: 'name', label: 'Name', head: true, by: ({ name }) => name, cell: ({ name }) => name },
                    { key: 'listening', label: 'Listens on', cell: ({ listening }) => text(listening) },
                    { key: 'mode', label: 'Mode', cell: ({ config }) => text(config?.mode) },
                    { key: 'tls', label: 'TLS', cell: ({ config }) => (config?.tls === false ? 'no' : 'yes') },
                    {
                        key: 'connections',
                        label: 'Connections',
                        cell: ({ name }) => <a href={href('connections', [], new URLSearchParams({ listener: name }))}>show</a>,
                    },
                    { key: 'origin', label: 'Written at', minor: true, cell: ({ origin }) => origin },
                ]}
            />
        </>
    );
}

interface RouteTableProps {
    routes: readonly Item[];
    live: ReadonlyMap<string, RouteFigure>;
    /** The states of the servers of each backend. */
    health: ReadonlyMap<string, string[]>;
    loaded: boolean;
}

function RouteTable({ routes, live, health, loaded }: RouteTableProps) {
    const of = ({ name }: Item) => live.get(name);
    return (
        <Table
            caption="Routes, as they are looked through"
            captionHidden
            rows={routes}
            rowKey={({ name }, at) => `${name} ${at}`}
            rowClass={(route) => ((of(route)?.errors_per_second ?? 0) > 0 ? 'bad' : undefined)}
            empty={loaded ? 'No route matches.' : 'Reading…'}
            columns={[
                { key: 'name', label: 'Route', head: true, by: ({ name }) => name, cell: ({ name }) => name },
                { key: 'listener', label: 'Listener', minor: true, cell: ({ config }) => text(config?.listener) },
                { key: 'to', label: 'Leads to', cell: ({ config }) => <Target keys={config ?? {}} health={health} /> },
                {
                    key: 'requests',
                    label: 'Requests/s',
                    numeric: true,
                    by: (route) => of(route)?.requests_per_second ?? null,
                    cell: (route) => rate(of(route)?.requests_per_second),
                },
                {
                    key: 'errors',
                    label: 'Errors/s',
                    numeric: true,
                    by: (route) => of(route)?.errors_per_second ?? null,
                    cell: (route) => <Errors route={route} figure={of(route)} />,
                },
                { key: 'p95', label: 'p95', numeric: true, by: (route) => of(route)?.p95_ms ?? null, cell: (route) => milliseconds(of(route)?.p95_ms) },
                { key: 'keys', label: 'Settings', minor: true, cell: ({ config }) => <Settings keys={config ?? {}} /> },
                { key: 'origin', label: 'Written at', minor: true, cell: ({ origin }) => origin },
            ]}
        />
    );
}

function Errors({ route, figure }: { route: Item; figure: RouteFigure | undefined }) {
    const errors = figure?.errors_per_second;
    const { backend = route.config?.server } = route.config ?? {};
    return (
        <>
            {rate(errors)}{' '}
            {(errors ?? 0) > 0 && (
                <WhyButton
                    question={{
                        heading: `Why do requests to ${route.name} fail?`,
                        query: typeof backend === 'string' ? { about: '502', backend } : { about: 'url', url: `https://${hostOf(route) ?? 'localhost'}/` },
                    }}
                />
            )}
        </>
    );
}

function hostOf({ config }: Item): string | null {
    const host = config?.host;
    const first = Array.isArray(host) ? host[0] : host;
    return typeof first === 'string' ? first : null;
}

function Target({ keys, health }: { keys: Keys; health: RouteTableProps['health'] }) {
    const name = TARGETS.find((name) => keys[name] !== undefined);
    if (name === undefined) return <>an answer of Offramp</>;
    const value = text(keys[name]);
    if (name === 'backend') {
        return (
            <>
                backend <a href={href('backends', [], new URLSearchParams({ find: value }))}>{value}</a> <Health backend={value} states={health.get(value)} />
            </>
        );
    }
    return <>{`${name} ${value}`}</>;
}

function Health({ backend, states }: { backend: string; states: string[] | undefined }) {
    if (!states) return null;
    const up = states.filter((state) => state === 'up').length;
    const level = up === states.length ? 'good' : up === 0 ? 'bad' : 'warn';
    return (
        <>
            <span class={`state ${level}`}>
                {up} of {states.length} up
            </span>{' '}
            {level !== 'good' && <WhyButton question={{ heading: `Why are servers of ${backend} not up?`, query: { about: '502', backend } }} />}
        </>
    );
}

function Settings({ keys }: { keys: Keys }) {
    const rest = Object.entries(keys).filter(([name]) => !MATCHES.has(name));
    if (rest.length === 0) return null;
    return (
        <details>
            <summary>{rest.length}</summary>
            {rest.map(([name, value]) => (
                <div key={name}>
                    <code>
                        {name} = {JSON.stringify(value)}
                    </code>
                </div>
            ))}
        </details>
    );
}
