// A stand-in for the admin interface, for the tests of the page and for work on it: `node test/mock.mjs [PORT]`.
// The state is an object that tests look into and change.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { realpathSync } from 'node:fs';
import * as data from './mock-data.mjs';

const PAGE = new URL('../../crates/admin/page/', import.meta.url);
const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };
export const POLICY =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

class Refused extends Error {
    constructor(status, detail, members = {}, headers = {}) {
        super(detail);
        Object.assign(this, { status, members, headers });
    }
}

function freshState(options) {
    return {
        token: 'correct-horse-battery',
        sessions: new Map(),
        tickets: new Set(['ticket-1']),
        wrong: 0,
        version: 3,
        text: data.FILE,
        history: [
            { version: 3, how: 'apply', at: new Date(Date.now() - 3_600_000).toISOString(), by: 'alice', changes: ['route git.example: added'], omitted: 0, new_certificates: 0, needs_an_upgrade: [] },
            { version: 2, how: 'reload', at: new Date(Date.now() - 7_200_000).toISOString(), by: 'SIGHUP', changes: ['limits.idle_timeout: "5m" -> "2m"'], omitted: 0, new_certificates: 0, needs_an_upgrade: [] },
        ],
        texts: new Map([[3, data.FILE]]),
        confirm: null,
        servers: data.servers(),
        renewed: [],
        closed: [],
        asked: [],
        store: 'there',
        streams: new Set(),
        tick: 400,
        everyMs: 1000,
        tailEveryMs: 100,
        confirmMs: null,
        login: true,
        ...options,
    };
}

export async function start(options = {}, port = 0) {
    const state = freshState(options);
    const server = createServer((request, response) => {
        void handle(state, request, response).catch((error) => refuse(response, error));
    });
    await new Promise((done) => server.listen(port, '127.0.0.1', done));
    const { port: bound } = server.address();
    const timers = [setInterval(() => publish(state), state.everyMs), setInterval(() => tail(state), state.tailEveryMs), setInterval(() => revert(state), 50)];
    return {
        state,
        url: `http://127.0.0.1:${bound}/ui/`,
        event: (kind, value = {}) => event(state, kind, value),
        send: (name, value) => broadcast(state, name, value),
        async close() {
            timers.forEach(clearInterval);
            server.closeAllConnections();
            await new Promise((done) => server.close(done));
        },
    };
}

function refuse(response, error) {
    if (response.headersSent) return response.destroy();
    const status = error.status ?? 500;
    const body = { type: 'about:blank', title: 'Refused', status, detail: error.status ? error.message : String(error.stack), ...error.members };
    response.writeHead(status, { 'Content-Type': 'application/problem+json', ...error.headers }).end(JSON.stringify(body));
    return undefined;
}

async function bodyOf(request) {
    const parts = [];
    for await (const part of request) parts.push(part);
    return Buffer.concat(parts).toString();
}

async function handle(state, request, response) {
    const { pathname, searchParams: query } = new URL(request.url, 'http://localhost');
    const path = pathname.split('/').slice(1).map(decodeURIComponent);
    state.asked.push(`${request.method} ${request.url}`);
    if (state.asked.length > 2000) state.asked.splice(0, 1000);
    if (path[0] === 'ui') return ui(state, request, response, path[1] ?? '');
    const session = sessionOf(state, request);
    if (state.login && !session) throw new Refused(401, 'the token of `token_file` is needed');
    if (session && request.method !== 'GET' && request.headers['x-offramp-csrf'] !== session.csrf) throw new Refused(403, 'the header X-Offramp-CSRF is missing or wrong');
    const body = request.method === 'GET' ? '' : await bodyOf(request);
    const answer = api(state, { method: request.method, path: path.slice(1), query, body, headers: request.headers }, response);
    if (answer === undefined) return undefined;
    response.writeHead(200, { 'Content-Type': 'application/json', ETag: tag(state) }).end(JSON.stringify(answer));
    return undefined;
}

function sessionOf(state, request) {
    const id = /(?:^|; )offramp_session=([^;]+)/.exec(request.headers.cookie ?? '')?.[1];
    return id === undefined ? null : (state.sessions.get(id) ?? null);
}

async function ui(state, request, response, name) {
    if (name === 'session') {
        const session = sessionOf(state, request);
        if (state.login && !session) throw new Refused(401, 'log in first');
        return json(response, session ?? { csrf: 'unix', name: null, interface: 'unix' });
    }
    if (name === 'logout') {
        state.sessions.clear();
        return json(response, {});
    }
    if (name === 'login') {
        const given = JSON.parse(await bodyOf(request));
        const good = given.token === state.token || (given.name === 'alice' && given.password === 'rabbit') || state.tickets.delete(given.once);
        if (!good) {
            state.wrong += 1;
            if (state.wrong > 3) throw new Refused(429, 'too many wrong tokens.', {}, { 'Retry-After': '20' });
            throw new Refused(401, given.token === undefined ? 'the name or the password is wrong.' : 'this is not the token of `token_file`.');
        }
        const session = { csrf: `csrf-${state.sessions.size}`, name: given.name ?? null, interface: given.once ? 'ui' : 'tcp' };
        state.sessions.set(`id-${state.sessions.size}`, session);
        response.setHeader('Set-Cookie', `offramp_session=id-${state.sessions.size - 1}; HttpOnly; SameSite=Strict; Path=/`);
        return json(response, session);
    }
    const file = name === '' ? 'index.html' : name;
    if (!/^[a-z.]+$/.test(file)) throw new Refused(404, 'there is no such file');
    const bytes = await readFile(new URL(file, PAGE)).catch(() => null);
    if (bytes === null) throw new Refused(404, 'there is no such file');
    const headers = { 'Content-Type': TYPES[file.split('.').at(-1)], 'Content-Security-Policy': POLICY, 'X-Content-Type-Options': 'nosniff', 'Referrer-Policy': 'no-referrer' };
    response.writeHead(200, headers).end(bytes);
    return undefined;
}

/** The tag of the version in force, in the form that Offramp's has. */
function tag({ version }) {
    return `"1a2211f3a03-${version}"`;
}

function json(response, value) {
    response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(value));
}

function api(state, { method, path, query, body, headers }, response) {
    const [kind, name, , server] = path;
    if (kind === 'logs' || kind === 'requests') return store(state, path, query, response);
    switch (`${method} ${kind}`) {
        case 'GET status':
            return status(state);
        case 'GET figures':
            if (query.has('once')) return data.figures(state.tick);
            stream(state, response, 'figures');
            write(response, 'figures', data.figures(state.tick));
            return undefined;
        case 'GET events':
            stream(state, response, 'events');
            return undefined;
        case 'GET listeners':
            return { listeners: data.LISTENERS };
        case 'GET routes':
            return { routes: data.ROUTES };
        case 'GET backends': {
            const shop = { name: 'shop', origin: '/etc/offramp/offramp.toml:30:1', servers: state.servers, config: { balance: 'least_conn', health: { path: '/up' } } };
            return name === undefined ? { backends: [shop] } : shop;
        }
        case 'PATCH backends':
            return patchServer(state, server, JSON.parse(body), query);
        case 'GET certificates':
            return { certificates: data.certificates(), items: [{ name: 'shop.example,www.shop.example', origin: 'f:1:1', config: { names: ['shop.example', 'www.shop.example'], acme: 'letsencrypt' } }] };
        case 'POST certificates':
            state.renewed.push(name);
            return { renewed: [{ until: new Date(Date.now() + 90 * 86_400_000).toISOString() }], failed: [] };
        case 'GET connections': {
            const from = Number(query.get('after') ?? 0);
            const limit = Number(query.get('limit') ?? 1000);
            return { connections: data.connections(from, Math.min(limit, 450 - from)), next: from + limit < 450 ? String(from + limit) : null };
        }
        case 'DELETE connections':
            state.closed.push(name ?? query.toString());
            event(state, 'closed', { connections: 1 });
            return { closed: name ? 1 : 17 };
        case 'GET config':
            return name === 'file' ? { path: '/etc/offramp/offramp.toml', text: state.text, version: state.version, differs: false } : { version: state.version, settings: {} };
        case 'PUT config':
            return put(state, body, query, headers);
        case 'POST check':
            if (query.toString() !== '') throw new Refused(400, 'this operation has no parameters');
            return check(body);
        case 'GET changes':
            return { version: state.version, changes: state.history, closed_connections: [] };
        case 'GET refused':
            return { refused: [{ how: 'reload', at: new Date().toISOString(), by: 'SIGHUP', reasons: [`/etc/offramp/offramp.toml:6:1: unknown key \`${data.SCRIPT}\``], omitted: 0 }] };
        case 'POST confirm':
            if (!state.confirm) throw new Refused(409, 'nothing waits to be confirmed');
            state.confirm = null;
            event(state, 'confirm', { what: 'confirmed' });
            return report(state, [], {});
        case 'POST rollback': {
            const to = Number(query.get('to') ?? state.confirm?.back.version ?? state.version - 1);
            const changes = [`back to version ${to}`];
            if (query.has('dry_run')) return report(state, changes, { dry_run: true });
            if (state.confirm && query.has('confirm')) throw new Refused(409, 'a change waits to be confirmed');
            commit(state, state.confirm?.back.text ?? state.texts.get(to) ?? state.text, 'rollback', changes, query.get('confirm'));
            return report(state, changes, {});
        }
        case 'GET why':
            if (query.get('about') === null) throw new Refused(400, '`about` is missing');
            return data.why(query);
        default:
            throw new Refused(404, `there is no operation ${method} /v1/${path.join('/')}`);
    }
}

function status(state) {
    return {
        version: '0.1.0',
        pid: 4711,
        started: new Date(Date.now() - 93_784_000).toISOString(),
        uptime_s: 93_784,
        workers: 4,
        config: { version: state.version, file: '/etc/offramp/offramp.toml', confirm_until: state.confirm && new Date(state.confirm.until).toISOString(), not_taken_back: null, unwritten: [], unsaved: null, last_refused: null },
        connections: { open: 1200, accepted: 99_120 },
        requests: { open: 31, ended: 12_345_678 },
        listeners: 2,
        routes: 4,
        backends: 1,
        servers: { up: 2, down: 1 },
        certificates: 4,
    };
}

function report(state, changes, more) {
    return {
        version: state.version,
        dry_run: false,
        changes,
        new_certificates: 0,
        needs_an_upgrade: [],
        touched: { opens: [], closes: [], connections: 41, open: 1200 },
        warnings: [],
        confirm_until: state.confirm && new Date(state.confirm.until).toISOString(),
        persisted: null,
        ...more,
    };
}

function patchServer(state, name, change, query) {
    const server = state.servers.find((one) => one.name === name);
    if (!server) throw new Refused(404, `there is no server \`${name}\``);
    const words = change.weight === undefined ? `enabled -> ${change.state}` : `weight ${server.weight} -> ${change.weight}`;
    const changes = [`backend shop: server ${name}: ${words}`];
    if (query.has('dry_run')) return report(state, changes, { dry_run: true });
    if (change.weight !== undefined) server.weight = change.weight;
    if (change.state !== undefined) {
        const states = { drain: ['draining', 'it finishes what it has and gets nothing new, as the configuration has it'], disabled: ['disabled', 'the configuration has disabled it'], enabled: ['up', 'it passes its health checks, or was not checked yet'] };
        [server.state, server.why] = states[change.state];
    }
    commit(state, state.text, 'patch', changes, query.get('confirm'));
    event(state, 'server', { backend: 'shop', server: name, state: server.state });
    return report(state, changes, {});
}

function check(body) {
    const errors = [];
    body.split('\n').forEach((text, at) => {
        const column = text.indexOf('bakend');
        if (column !== -1) errors.push({ line: at + 1, column: column + 1, end_column: column + 7, key: 'route.bakend', message: 'unknown key `bakend`; the nearest one is `backend`' });
    });
    return { ok: errors.length === 0, errors, warnings: [] };
}

function put(state, body, query, headers) {
    const expected = headers['if-match'];
    if (expected !== undefined && !/^"[0-9a-f]+-\d+"$/.test(expected)) throw new Refused(400, 'If-Match takes one tag as an ETag has it');
    if (expected !== undefined && expected !== tag(state)) {
        throw new Refused(409, `the configuration has changed meanwhile: version ${state.version} is in force`, { version: state.version, difference: ['route blog.example: added'] });
    }
    if (state.confirm) throw new Refused(409, 'a change waits to be confirmed');
    const { errors } = check(body);
    if (errors.length > 0) throw new Refused(422, 'the configuration has an error', { errors: errors.map(({ line, message }) => ({ at: `document:${line}`, text: message })) });
    const changes = [];
    const lines = new Set(state.text.split('\n'));
    for (const line of body.split('\n')) {
        if (!lines.has(line) && line.startsWith('host = ')) changes.push(`route ${line.slice(8, -1)}: added`);
        if (!lines.has(line) && line.startsWith('idle_timeout')) changes.push('limits.idle_timeout: "5m" -> "2m"');
    }
    const more = /^\[admin\]/m.test(body) ? { needs_an_upgrade: ['admin.address'], warnings: ['[admin] stays as it is until the next upgrade or start'] } : {};
    if (query.has('dry_run')) return report(state, changes, { dry_run: true, ...more });
    commit(state, body, 'apply', changes, query.get('confirm'));
    return report(state, changes, more);
}

function commit(state, text, how, changes, confirm) {
    const back = { version: state.version, text: state.text };
    state.version += 1;
    state.text = text;
    state.texts.set(state.version, text);
    state.history.unshift({ version: state.version, how, at: new Date().toISOString(), by: 'page', changes, omitted: 0, new_certificates: 0, needs_an_upgrade: [] });
    const seconds = confirm === null ? null : Number.parseInt(confirm, 10) * (confirm.endsWith('m') ? 60 : 1);
    state.confirm = seconds === null ? null : { until: Date.now() + (state.confirmMs ?? seconds * 1000), back };
    event(state, 'change', { version: state.version });
}

function revert(state) {
    if (!state.confirm || Date.now() < state.confirm.until) return;
    const { back } = state.confirm;
    commit(state, back.text, 'taken back', ['taken back'], null);
    event(state, 'confirm', { what: 'taken_back' });
}

function store(state, path, query, response) {
    if (state.store === 'none') throw new Refused(404, 'there is no log store: set `url` in [log_store]');
    if (state.store === 'away') throw new Refused(503, 'the log store does not answer; requests wait in the spool');
    if (path[0] === 'requests') return data.story(path[1]);
    if (path[1] === 'tail') {
        stream(state, response, 'tail');
        return undefined;
    }
    const answer = data.logs(path[1], query);
    if (answer === null) throw new Refused(400, 'a parameter is missing or wrong');
    return answer;
}

function stream(state, response, of) {
    response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
    response.write(': hello\n\n');
    const one = { response, of };
    state.streams.add(one);
    response.on('close', () => state.streams.delete(one));
}

let lastId = 0;

function write(response, name, value) {
    response.write(`id: ${(lastId += 1)}\nevent: ${name}\ndata: ${JSON.stringify(value)}\n\n`);
}

function broadcast(state, name, value, of = { figures: 'figures', request: 'tail', lost: 'tail' }[name] ?? 'events') {
    for (const one of state.streams) if (one.of === of) write(one.response, name, value);
}

function event(state, kind, value) {
    broadcast(state, kind, { at: new Date().toISOString(), ...value }, 'events');
}

function publish(state) {
    state.tick += 1;
    broadcast(state, 'figures', data.figures(state.tick));
}

let requests = 0;

function tail(state) {
    if (![...state.streams].some(({ of }) => of === 'tail')) return;
    broadcast(state, 'request', data.request((requests += 1)));
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
    const { url, state } = await start({}, Number(process.argv[2] ?? 0));
    console.log(`${url}  token: ${state.token}`);
}
