// The page on a real Offramp: OFFRAMP=target/debug/offramp node --test test/real.mjs
// PAGE=../crates/admin/page has the page from there, for work on it without a new build of Offramp.
// One process for all tests, since each changes what the next one finds; they run in order.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { goTo, until, useBrowser, withPage } from './browser.mjs';
import { SCRIPT } from './mock-data.mjs';

const OFFRAMP = process.env.OFFRAMP;
assert.ok(OFFRAMP, 'OFFRAMP names the program');

useBrowser();

let folder;
let file;
let application;
let dead;
let offramp;
let port;
const started = [];

/** Starts the program, and returns the first line of its output that has the text. */
async function start(args, text) {
    const child = spawn(OFFRAMP, args, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
    started.push(child);
    const lines = [];
    const found = new Promise((resolve, reject) => {
        for (const stream of [child.stdout, child.stderr]) {
            createInterface({ input: stream }).on('line', (line) => {
                lines.push(line);
                if (lines.length > 200) lines.shift();
                if (line.includes(text)) resolve(line);
            });
        }
        child.once('exit', (code) => reject(new Error(`offramp ${args.join(' ')} ended with ${code}:\n${lines.join('\n')}`)));
    });
    return { child, line: await found };
}

async function free() {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address();
    server.close();
    await once(server, 'close');
    return port;
}

before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'page-'));
    file = join(folder, 'offramp.toml');
    application = createServer((request, response) => response.writeHead(request.url.startsWith('/missing') ? 404 : 200).end('hello')).listen(0, '127.0.0.1');
    await once(application, 'listening');
    dead = await free();
    const text = `state_dir = ${JSON.stringify(join(folder, 'state'))}

[access_log]
output = "none"

[log_store]
url = ${JSON.stringify(`sqlite:${join(folder, 'access.db')}`)}

[[listener]]
name = "web"
address = "127.0.0.1:0"
mode = "http"

# The shop.
[[route]]
host = "localhost"
backend = "app"

[backend.app]
servers = ["127.0.0.1:${application.address().port}", "127.0.0.1:${dead}"]
health = { path = "/", interval = "1s" }
`;
    await writeFile(file, text);
    offramp = await start(['run', '-c', file], 'listening listener=web');
    port = Number(/address=127\.0\.0\.1:(\d+)/.exec(offramp.line.replace(/\u001b\[[\d;]*m/g, ''))[1]);
});

after(async () => {
    for (const child of started) child.kill();
    application?.close();
    if (folder) await rm(folder, { recursive: true, force: true });
});

/** Sends a request through Offramp, and returns the status. */
async function visit(path, headers = {}) {
    const sent = request({ host: '127.0.0.1', port, path, headers: { host: 'localhost', ...headers }, servername: 'localhost', rejectUnauthorized: false, agent: false });
    sent.end();
    const [response] = await once(sent, 'response');
    response.resume();
    await once(response, 'end');
    return response.statusCode;
}

/** The page, opened by a link of `offramp ui`. */
async function onOfframp(hash, run) {
    const { child, line } = await start(['ui', '--no-open', '-c', file], '#once=');
    try {
        await withPage({ url: line.trim(), hash: '', login: false }, async ({ page }) => {
            await page.getByRole('navigation', { name: 'Views' }).waitFor();
            await goTo(page, hash);
            await run(page);
        });
    } finally {
        child.removeAllListeners('exit');
        child.kill();
    }
}

const row = (page, text) => page.getByRole('row').filter({ hasText: text });
const area = (page) => page.getByRole('textbox', { name: 'The configuration, in TOML' });

test('Now shows figures as they come, and the server that is down', async () => {
    await onOfframp('#/now', async (page) => {
        await page.getByText('live', { exact: true }).waitFor();
        await page.getByText(`server 127.0.0.1:${dead} is down`).waitFor();
        await until(async () => {
            await visit('/');
            return (await page.getByRole('table', { name: 'The heaviest hosts' }).getByText('localhost').count()) > 0;
        }, 'the host is shown');
        await row(page, 'on time').first().waitFor();
    });
});

test('a server is drained and enabled', async () => {
    const name = `127.0.0.1:${application.address().port}`;
    await onOfframp('#/backends', async (page) => {
        for (const [word, state] of [
            ['Drain', 'draining'],
            ['Enable', 'up'],
        ]) {
            await page.getByRole('button', { name: `${word} ${name}` }).click();
            await page.getByRole('dialog').getByText(/open connections? of/).waitFor();
            await page.getByRole('dialog').getByRole('button', { name: word }).click();
            await row(page, name).getByText(state, { exact: true }).waitFor();
        }
    });
});

test('an edit is checked, planned, applied and kept, and the file has it', async () => {
    await onOfframp('#/configuration', async (page) => {
        await area(page).waitFor();
        const text = await area(page).inputValue();
        assert.ok(text.includes('# The shop.'), 'comments are there');
        await area(page).fill(text.replace('backend = "app"', 'bakend = "app"'));
        await page.getByText(/unknown key `bakend`/).waitFor();
        assert.ok((await page.locator('mark').allTextContents()).includes('bakend'));
        await area(page).fill(`${text}\n[limits]\nidle_timeout = "2m"\n`);
        await page.getByText('No error.').waitFor();
        await page.getByRole('button', { name: 'Plan' }).click();
        await page.getByText('limits.idle_timeout: "5m" -> "2m"').waitFor();
        await page.getByRole('button', { name: 'Apply' }).click();
        await page.getByRole('button', { name: 'Keep' }).click();
        await page.getByText('Nothing is edited.').waitFor();
        await until(async () => (await readFile(file, 'utf8')).includes('idle_timeout = "2m"'), 'the file has it');
        assert.ok((await area(page).inputValue()).includes('idle_timeout = "2m"'));
    });
});

test('an edit goes back, and one that would cut the page off says so', async () => {
    await onOfframp('#/configuration', async (page) => {
        await area(page).waitFor();
        const text = await area(page).inputValue();
        await area(page).fill(text.replace('"2m"', '"3m"'));
        await page.getByText('No error.').waitFor();
        await page.getByRole('button', { name: 'Plan' }).click();
        await page.getByRole('button', { name: 'Apply' }).click();
        await page.getByRole('button', { name: 'Go back' }).click();
        await page.getByText('your text is still here').waitFor();
        assert.ok((await area(page).inputValue()).includes('"3m"'));
        await area(page).fill(`${text}\n[admin]\naddress = "127.0.0.1:9901"\n`);
        await page.getByText('No error.').waitFor();
        await page.getByRole('button', { name: 'Plan' }).click();
        await page.getByText('This edit would cut off this page.').waitFor();
    });
});

test('two people edit, and neither loses anything', async () => {
    await onOfframp('#/configuration', async (mine) => {
        await area(mine).waitFor();
        const text = await area(mine).inputValue();
        await area(mine).fill(`${text}\n# mine\n`);
        await onOfframp('#/backends', async (page) => {
            const name = `127.0.0.1:${application.address().port}`;
            await page.getByRole('button', { name: `Weight ${name}` }).click();
            await page.getByLabel('Weight, 1 to 256').fill('7');
            await page.getByRole('dialog').getByText('weight 1 -> 7').waitFor();
            await page.getByRole('button', { name: 'Change', exact: true }).click();
            await page.getByRole('dialog').waitFor({ state: 'detached' });
        });
        await mine.getByRole('alert').filter({ hasText: 'Somebody else has changed the configuration' }).waitFor();
        assert.ok((await area(mine).inputValue()).endsWith('# mine\n'));
    });
});

test('a site is added by four fields', async () => {
    await onOfframp('#/configuration/site', async (page) => {
        await page.getByLabel('Name', { exact: true }).fill('site.example');
        await page.getByLabel('Where the application listens').fill(String(application.address().port));
        await page.getByRole('button', { name: 'Write it into the editor' }).click();
        await page.getByText('No error.').waitFor();
        await page.getByRole('button', { name: 'Plan' }).click();
        await page.getByText('route site.example: added').waitFor();
        await page.getByRole('button', { name: 'Apply' }).click();
        await page.getByRole('button', { name: 'Keep' }).click();
        await page.getByText('Nothing is edited.').waitFor();
    });
    assert.equal(await visit('/', { host: 'site.example' }), 200, 'the site is there');
});

test('a return to an earlier version is taken back or kept', async () => {
    const isThere = async () => (await visit('/', { host: 'site.example' })) === 200;
    await onOfframp('#/configuration/history', async (page) => {
        const waiting = page.getByRole('region', { name: 'A change waits for you' });
        const goBack = async () => {
            await page.getByRole('button', { name: 'Go back to version 1…' }).click();
            const question = page.getByRole('dialog', { name: 'Go back to version 1?' });
            await question.getByText('route site.example: removed').waitFor();
            assert.ok(await isThere(), 'a question changes nothing');
            await question.getByRole('button', { name: 'Go back' }).click();
            await page.getByText(/as version 1 was, and is taken back unless you keep it/).waitFor();
            await waiting.getByText(/\d+ seconds/).waitFor();
            assert.ok(!(await isThere()), 'the site is gone');
        };
        await goBack();
        await waiting.getByRole('button', { name: 'Go back' }).click();
        await waiting.waitFor({ state: 'detached' });
        assert.ok(await isThere(), 'the return was taken back');
        await goBack();
        await waiting.getByRole('button', { name: 'Keep' }).click();
        await waiting.waitFor({ state: 'detached' });
        assert.ok(!(await isThere()), 'the return was kept');
    });
});

test('requests come live, are found again, and have a story', async () => {
    await onOfframp('#/requests', async (page) => {
        await page.getByText('as they end').waitFor();
        await until(async () => {
            await visit(`/live?q=${encodeURIComponent(SCRIPT)}`, { referer: SCRIPT, 'user-agent': SCRIPT });
            return (await row(page, '/live').count()) > 0;
        }, 'the request is shown');
        await visit('/missing-page', { referer: 'https://search.test/', 'user-agent': SCRIPT });
        await goTo(page, '#/requests?text=missing-page');
        await until(async () => {
            await page.getByRole('button', { name: 'Search', exact: true }).click();
            await page.waitForTimeout(200);
            return (await row(page, '/missing-page').count()) > 0;
        }, 'the request is found');
        await row(page, '/missing-page').first().getByRole('link').first().click();
        const steps = page.getByRole('table', { name: 'Each step with its time' }).locator('tbody th');
        await steps.first().waitFor();
        assert.ok((await steps.count()) >= 2, 'the story has steps');
        await page.locator('.facts').getByText(SCRIPT).waitFor();
    });
});

test('the log store answers each question, with its command', async () => {
    await onOfframp('#/traffic', async (page) => {
        for (const tab of ['Over time', 'Hosts', 'Pages', 'Clients', 'Networks', 'Referrers', 'Agents', 'Bots', 'Status', 'Errors', 'Slow', 'Visitors']) {
            await page.getByRole('tab', { name: tab, exact: true }).click();
            await page.getByRole('tabpanel', { name: tab, exact: true }).locator('.same code').getByText(/^offramp logs /).waitFor();
            assert.equal(await page.getByRole('alert').count(), 0, tab);
        }
        await page.getByRole('tab', { name: 'Agents', exact: true }).click();
        await row(page, SCRIPT).waitFor();
        await page.getByRole('tab', { name: 'Hosts', exact: true }).click();
        await page.getByLabel('beside the period before').check();
        await page.getByText(/^offramp logs compare hosts/).waitFor();
    });
});

test('a connection is shown and closed', async () => {
    const open = request({ host: '127.0.0.1', port, path: '/', headers: { host: 'localhost', connection: 'keep-alive' }, servername: 'localhost', rejectUnauthorized: false });
    const socket = new Promise((resolve) => open.once('socket', resolve));
    open.on('error', () => {});
    open.flushHeaders();
    const closed = socket.then((socket) => once(socket, 'close'));
    await onOfframp('#/connections', async (page) => {
        const close = page.getByRole('button', { name: /^Close the connection of 127\.0\.0\.1/ });
        await until(async () => {
            await page.getByRole('button', { name: 'Read again' }).click();
            return (await close.count()) > 0;
        }, 'the connection is shown');
        await close.first().click();
        await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
        await page.getByText('Closed 1 connection').waitFor();
        await closed;
    });
});
