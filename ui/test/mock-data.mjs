// Data of the mock: a home server with a shop, with script in every field that a stranger can write; for pictures
// (PLAIN) without.

const plain = process.env.PLAIN !== undefined;

export const SCRIPT = plain ? '' : '<img src=x onerror="window.hacked=1">';
export const SCRIPT_HOST = plain ? 'photos.example' : `${SCRIPT}.example`;
export const REQUEST_ID = '01a1ffe0-6b23-7000-8000-00001a2b3c4d';
export const SCRIPT_ID = '01a1ffe0-6b23-7000-8000-0000deadbeef';

export const FILE = `# The front door of the shop.
[log_store]
url = "sqlite:/var/lib/offramp/access.db"

[[listener]]
name = "web"
address = "[::]:443"
mode = "http"

[[listener]]
name = "plain"
address = "[::]:80"
mode = "http"
tls = false

[[route]]
listener = "plain"
redirect = "https"

[[route]]
listener = "web"
host = "shop.example"
backend = "shop"

[[route]]
listener = "web"
host = "git.example"
server = "127.0.0.1:3000"

[backend.shop]
servers = ["10.0.0.7:3000", "10.0.0.8:3000 weight=2", "10.0.0.9:3000"]
balance = "least_conn"
health = { path = "/up" }
`;

const day = 86_400_000;
const ago = (ms) => new Date(Date.now() - ms).toISOString();
const ahead = (ms) => new Date(Date.now() + ms).toISOString();

export function wave(tick, period, low, high) {
    const noise = Math.abs(Math.sin(tick * 12.9898) * 43758.5453) % 1;
    return low + (high - low) * (0.5 + 0.35 * Math.sin((tick / period) * 2 * Math.PI) + 0.3 * (noise - 0.5));
}

export function figures(tick, at = new Date()) {
    const total = wave(tick, 90, 260, 520);
    const failed = tick % 97 < 8 ? total * 0.03 : total * 0.002;
    const share = (part) => total * part;
    return {
        at: at.toISOString(),
        interval_s: 1,
        requests: { per_second: total, by_class: { '2xx': share(0.88), '3xx': share(0.06), '4xx': share(0.05), '5xx': failed } },
        connections: { open: Math.round(wave(tick, 300, 900, 1400)), accepted_per_second: wave(tick, 60, 18, 40) },
        handshakes: { full_per_second: wave(tick, 60, 6, 14), resumed_per_second: wave(tick, 60, 10, 24), failed_per_second: wave(tick, 37, 0, 0.8) },
        bytes: { in_per_second: wave(tick, 80, 2e5, 6e5), out_per_second: wave(tick, 80, 8e6, 2.2e7) },
        latency_ms: { p50: wave(tick, 50, 2.1, 3.4), p95: wave(tick, 50, 18, 31), p99: wave(tick, 70, 60, 180) },
        causes: [
            { cause: 'server_refused', side: 'server', per_second: failed, total: 1840 + tick },
            { cause: 'no_route', side: 'policy', per_second: 0.2, total: 5120 },
            { cause: 'client_aborted', side: 'client', per_second: 0.9, total: 40_127 },
            { cause: 'no_common_version', side: 'policy', per_second: 0.1, total: 311 },
            { cause: 'handshake_abandoned', side: 'client', per_second: 0, total: 904 },
        ],
        limits: [
            { limit: 'requests_per_client', refused_per_second: 1.4, total: 22_140 },
            { limit: 'connections_per_client', refused_per_second: 0, total: 12 },
        ],
        workers: [0, 1, 2, 3].map((worker) => ({ worker, connections: 240 + 7 * worker, busy: wave(tick + 11 * worker, 40, 0.08, 0.3), late: false })),
        hosts: ['shop.example', 'git.example', 'cloud.example', 'media.example', SCRIPT_HOST].map((name, at) => ({
            name,
            requests_per_second: total / 2 ** (at + 1),
            bytes_out_per_second: 1.6e7 / 2 ** at,
        })),
        routes: [
            { route: 'shop.example', listener: 'web', requests_per_second: total * 0.7, errors_per_second: failed, p95_ms: 28 },
            { route: 'git.example', listener: 'web', requests_per_second: total * 0.25, errors_per_second: 0, p95_ms: 61 },
        ],
        backends: [
            {
                backend: 'shop',
                servers: [
                    { server: '10.0.0.7:3000', state: 'up', requests_per_second: total * 0.3, active: 12 },
                    { server: '10.0.0.8:3000', state: 'up', requests_per_second: total * 0.4, active: 21 },
                    { server: '10.0.0.9:3000', state: 'down', requests_per_second: 0, active: 0 },
                ],
            },
        ],
        clients: ['203.0.113.5', '192.0.2.7', '2001:db8::7'].map((client, at) => ({
            client,
            connections: 912 - at,
            requests_per_second: 12.5 - at,
            bytes_per_second: 3e6 / (at + 1),
        })),
    };
}

export const ROUTES = [
    { name: 'plain: *', origin: '/etc/offramp/offramp.toml:17:1', config: { listener: 'plain', redirect: 'https' } },
    { name: 'shop.example', origin: '/etc/offramp/offramp.toml:21:1', config: { listener: 'web', host: ['shop.example'], backend: 'shop', hsts: true } },
    { name: 'git.example', origin: '/etc/offramp/offramp.toml:26:1', config: { listener: 'web', host: ['git.example'], server: '127.0.0.1:3000' } },
    { name: SCRIPT_HOST, origin: 'the API', config: { listener: 'web', host: [SCRIPT_HOST], root: `/srv/${SCRIPT}` } },
];

export const LISTENERS = [
    { name: 'web', origin: '/etc/offramp/offramp.toml:5:1', listening: ['[::]:443'], config: { mode: 'http' } },
    { name: 'plain', origin: '/etc/offramp/offramp.toml:10:1', listening: ['[::]:80'], config: { mode: 'http', tls: false } },
];

export function servers() {
    const server = (name, state, why, weight, active) => ({ name, state, why, weight, backup: false, active, addresses: [name], check: null });
    return [
        server('10.0.0.7:3000', 'up', 'it passes its health checks, or was not checked yet', 1, 12),
        server('10.0.0.8:3000', 'up', '1 of 3 checks failed: timeout: the probe took too long', 2, 21),
        server('10.0.0.9:3000', 'down', `it fails its health checks: connection refused ${SCRIPT}`, 1, 0),
    ];
}

export function certificates() {
    const one = (names, source, days, more = {}) => ({
        names,
        source,
        key: 'P-256',
        not_before: ago((90 - days) * day),
        not_after: ahead(days * day),
        days_left: days,
        valid: days > 0,
        ...more,
    });
    return [
        one(['shop.example', 'www.shop.example'], 'acme', 61, {
            authority: 'letsencrypt',
            next_renewal: ahead(31 * day),
            last_refusal: null,
            chain: [
                { subject: 'shop.example', issuer: 'E7', not_after: ahead(61 * day) },
                { subject: 'E7', issuer: 'ISRG Root X1', not_after: ahead(700 * day) },
            ],
        }),
        one(['git.example'], 'acme', 6, {
            authority: 'letsencrypt',
            next_renewal: ahead(3_600_000),
            last_refusal: {
                at: ago(7_200_000),
                authority: 'letsencrypt',
                detail: 'DNS problem: NXDOMAIN looking up A for git.example - check that a DNS record exists for this domain',
            },
        }),
        one(['*.home.arpa', 'localhost'], 'local_ca', 88),
        one([SCRIPT_HOST, 'a.example', 'b.example', 'c.example', 'd.example'], 'file', 300),
    ];
}

export function connections(from, count) {
    return Array.from({ length: count }, (_, index) => {
        const at = from + index;
        return {
            id: `01a1ffe0-6b21-7000-8000-${String(at).padStart(12, '0')}`,
            worker: at % 4,
            listener: 'web',
            client: at % 3 === 0 ? `[2001:db8::${at.toString(16)}]:5123` : `192.0.2.${at % 250}:51234`,
            peer: null,
            name: at === 1 ? SCRIPT_HOST : 'shop.example',
            protocol: at % 2 === 0 ? 'h2' : 'http/1.1',
            tls: 'TLSv1.3',
            route: 'shop.example',
            backend: 'shop',
            server: '10.0.0.7:3000',
            accepted: ago(at * 1000),
            age_s: at,
            bytes_from_client: at * 517,
            bytes_to_client: at * 18_423,
            requests: { begun: at % 40, open: at % 2 },
        };
    });
}

export function request(number) {
    const bad = number % 17 === 0;
    const evil = number % 5 === 0;
    return {
        time: new Date().toISOString(),
        host: evil ? SCRIPT_HOST : 'shop.example',
        client: `192.0.2.${number % 250}`,
        method: 'GET',
        path: evil ? `/${SCRIPT}` : `/item/${number}`,
        query: number % 3 === 0 ? 'page=2' : null,
        status: bad ? 502 : number % 11 === 0 ? 404 : 200,
        bytes: 18_423,
        duration_us: 8402 + number,
        cause: bad ? 'server_refused' : null,
        referer: evil ? SCRIPT : 'https://search.test/',
        agent: evil ? SCRIPT : 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0',
        route: 'shop.example',
        server: '10.0.0.7:3000',
        request_id: evil ? SCRIPT_ID : REQUEST_ID,
    };
}

export function story(id) {
    const evil = id === SCRIPT_ID;
    return {
        ...request(evil ? 5 : 1),
        request_id: id,
        duration_us: 48_402,
        protocol: 'HTTP/2.0',
        tls: 'TLSv1.3',
        received: 0,
        network: '192.0.2.0/24',
        bot: false,
        user: evil ? SCRIPT : 'alice',
        // Fields that the log store does not have, but may have some day.
        sni: evil ? SCRIPT : 'shop.example',
        client_cn: evil ? SCRIPT : 'laptop of Alice',
        headers: { 'x-comment': evil ? SCRIPT : 'none' },
        story: [
            { step: 'accepted', at_ms: 0, took_ms: null, says: 'The connection came on the listener web, to worker 2.' },
            { step: 'handshake', at_ms: 2.31, took_ms: 2.31, says: 'TLSv1.3 with X25519MLKEM768; the session was not resumed.' },
            { step: 'route', at_ms: 2.4, took_ms: 0.012, says: `The host ${evil ? SCRIPT : 'shop.example'} matches the route shop.example; routes with a longer path did not match.` },
            { step: 'authentication', at_ms: 3.7, took_ms: 1.2, says: 'Basic: alice.' },
            { step: 'queue', at_ms: 12.8, took_ms: 9.1, says: 'Both servers were at max_connections.' },
            { step: 'connect', at_ms: 16.9, took_ms: 4.1, says: 'A new connection to 10.0.0.7:3000.' },
            { step: 'first_byte', at_ms: 41, took_ms: 24.1, says: 'The server worked on its answer.' },
            { step: 'done', at_ms: 48.402, took_ms: 7.4, says: '18,423 bytes were sent.' },
        ],
    };
}

const text = (name) => ({ name, kind: 'text' });
const COUNTED = [
    { name: 'requests', kind: 'integer' },
    { name: 'bytes', kind: 'bytes' },
];

function shell(kind, query) {
    const flags = [...query.entries()].filter(([name]) => name !== 'what' && name !== 'text').map(([name, value]) => ` --${name} '${value}'`);
    return `offramp logs ${[kind, query.get('what'), query.get('text') && `'${query.get('text')}'`].filter(Boolean).join(' ')}${flags.join('')}`;
}

/** The answer to a question about the logs. */
export function logs(kind, query) {
    const answer = (columns, rows, notes = []) => ({ columns, rows, exact: notes.length === 0, notes, command: shell(kind, query) });
    const heavy = (names) => names.map((name, at) => [name, Math.round(98_000 / 1.7 ** at), Math.round(9e9 / 1.9 ** at)]);
    const what = query.get('what');
    if (kind === 'traffic') {
        const hour = 3_600_000;
        const begin = Math.floor(Date.now() / hour) * hour - 23 * hour;
        const rows = Array.from({ length: 24 }, (_, at) => [new Date(begin + at * hour).toISOString(), Math.round(wave(at, 24, 2e4, 9e4)), Math.round(wave(at, 24, 1e9, 9e9))]);
        return answer([{ name: 'time', kind: 'time' }, ...COUNTED], rows);
    }
    if (kind === 'visitors') {
        return answer([{ name: 'time', kind: 'time' }, { name: 'visitors', kind: 'integer' }, COUNTED[0]], [[ago(day), 512, 98_112], [ago(0), 480, 91_002]]);
    }
    if (kind === 'compare') {
        return answer(
            [text(what === null ? 'what' : what.replace(/s$/, '')), { name: 'now', kind: 'integer' }, { name: 'before', kind: 'integer' }, { name: 'change_percent', kind: 'percent' }],
            [[what === null ? 'requests' : 'shop.example', 98_000, 91_000, 7.7], [what === null ? 'bytes' : SCRIPT_HOST, 51_000, 54_000, -5.6]],
        );
    }
    if (kind === 'search' && !query.get('text')) return null;
    if (kind === 'search' || kind === 'requests') {
        const kinds = { time: 'time', status: 'integer', bytes: 'bytes', duration_us: 'microseconds' };
        const columns = Object.keys(request(0)).map((name) => ({ name, kind: kinds[name] ?? 'text' }));
        const rows = Array.from({ length: 20 }, (_, at) => Object.values(request(at)));
        return answer(columns, rows);
    }
    switch (what) {
        case 'hosts':
            return answer([text('host'), ...COUNTED], heavy(['shop.example', 'git.example', 'cloud.example', SCRIPT_HOST]));
        case 'pages':
            return answer([text('page'), text('host'), ...COUNTED], heavy(['/', '/item/7', `/${SCRIPT}`, '/cart']).map(([page, ...rest]) => [page, 'shop.example', ...rest]), [
                'A page that is not listed may have up to 12 requests.',
            ]);
        case 'clients':
            return answer([text('client'), ...COUNTED], heavy(['203.0.113.5', '192.0.2.7', '2001:db8::7']));
        case 'networks':
            return answer([text('network'), ...COUNTED], heavy(['203.0.113.0/24', '192.0.2.0/24']));
        case 'referrers':
            return answer([text('referrer'), ...COUNTED], heavy(['search.test', SCRIPT, null]));
        case 'agents':
            return answer([text('agent'), ...COUNTED], heavy(['Mozilla/5.0', SCRIPT, 'curl/8.5.0']));
        case 'countries':
            return answer([text('country'), ...COUNTED], heavy(['DE', 'FR', 'US']));
        case 'cities':
            return answer([text('city'), text('country'), ...COUNTED], heavy(['Berlin', 'Paris']).map(([city, ...rest]) => [city, 'DE', ...rest]));
        case 'status':
            return answer([{ name: 'status', kind: 'integer' }, ...COUNTED], heavy([200, 304, 404, 502]));
        case 'errors':
            return answer([{ name: 'status', kind: 'integer' }, text('cause'), text('page'), text('host'), ...COUNTED], [[502, 'server_refused', '/cart', 'shop.example', 88, 9100], [404, null, `/${SCRIPT}`, 'shop.example', 41, 8100]]);
        case 'slow':
            return answer([text('page'), text('host'), COUNTED[0], ...['p50_ms', 'p95_ms', 'p99_ms'].map((name) => ({ name, kind: 'milliseconds' }))], [['/report', 'shop.example', 120, 830, 1930, 4100]]);
        default:
            return null;
    }
}

export function why(query) {
    return {
        question: query.get('about') ?? 'request',
        first: `The server 10.0.0.9:3000 refuses connections: nothing listens there. ${SCRIPT}`,
        evidence: [
            { says: '1,840 requests ended by server_refused since the start', source: 'figure offramp_requests_ended_total' },
            { says: `its health check fails: connection refused ${SCRIPT}`, source: '/etc/offramp/offramp.toml:31:1' },
        ],
        remedy: ['Start the application on 10.0.0.9, or take it out meanwhile:', 'offramp ctl server drain shop 10.0.0.9:3000'],
        facts: { backend: query.get('backend'), asked: query.toString(), note: SCRIPT },
    };
}
