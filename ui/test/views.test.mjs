import assert from 'node:assert/strict';
import { test } from 'node:test';
import { goTo, until, useBrowser, withPage } from './browser.mjs';
import { figures, REQUEST_ID } from './mock-data.mjs';

useBrowser();

const lastQuestion = (mock) => mock.state.asked.findLast((asked) => asked.startsWith('GET /v1/logs/'));
const row = (page, text) => page.getByRole('row').filter({ hasText: text });

test('Now shows figures, curves and what needs somebody, and moves', async () => {
    await withPage({ mock: { everyMs: 60_000 } }, async ({ page, mock }) => {
        await page.getByText('server 10.0.0.9:3000 is down').waitFor();
        await page.getByText('NXDOMAIN looking up A for git.example').waitFor();
        assert.equal(await page.getByRole('img', { name: /^Requests per second: 2xx/ }).count(), 1);
        assert.equal(await page.locator('.curves canvas').count(), 6);
        const next = figures(1, new Date(Date.now() + 1000));
        mock.send('figures', { ...next, requests: { ...next.requests, per_second: 4321 }, workers: [{ worker: 7, connections: 1, busy: 0.5, late: true }] });
        await page.getByText('4,321').waitFor();
        await page.getByText('Worker 7 is late').waitFor();
        await row(page, 'server refused').first().waitFor();
        for (const name of ['Errors by cause', 'Refused by limits', 'Workers', 'The heaviest hosts', 'The heaviest clients']) {
            assert.equal(await page.getByRole('table', { name }).count(), 1, name);
        }
        await page.getByLabel('Curves over the last').selectOption('1 hour');
        assert.equal(await page.locator('.curves canvas').count(), 6);
    });
});

test('a red thing leads to why, and the focus comes back', async () => {
    await withPage({}, async ({ page, mock }) => {
        const why = page.getByRole('button', { name: 'Why is 10.0.0.9:3000 down?' });
        await why.click();
        const panel = page.getByRole('complementary', { name: 'Why is 10.0.0.9:3000 down?' });
        await panel.getByText('refuses connections: nothing listens there').waitFor();
        await panel.getByText('offramp ctl server drain shop 10.0.0.9:3000').waitFor();
        assert.ok(mock.state.asked.includes('GET /v1/why?about=502&backend=shop'), mock.state.asked.join('\n'));
        assert.equal(await panel.getByRole('link', { name: 'the backend' }).getAttribute('href'), '#/backends?find=shop');
        await page.keyboard.press('Escape');
        await panel.waitFor({ state: 'detached' });
        assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')), 'Why is 10.0.0.9:3000 down?');
    });
});

test('Traffic asks each question, filters by a click, compares, and shows the command', async () => {
    await withPage({ hash: '#/traffic' }, async ({ page, mock }) => {
        await page.getByText('offramp logs traffic --since').waitFor();
        assert.equal(await page.locator('.curves canvas').count(), 2);
        for (const [tab, text] of [
            ['Hosts', 'git.example'],
            ['Pages', '/item/7'],
            ['Clients', '203.0.113.5'],
            ['Networks', '203.0.113.0/24'],
            ['Referrers', 'search.test'],
            ['Countries', 'DE'],
            ['Cities', 'Berlin'],
            ['Agents', 'curl/8.5.0'],
            ['Bots', 'curl/8.5.0'],
            ['Status', '502'],
            ['Errors', '/cart'],
            ['Slow', '/report'],
            ['Visitors', '512'],
        ]) {
            await page.getByRole('tab', { name: tab, exact: true }).click();
            await page.getByRole('tabpanel', { name: tab, exact: true }).getByText(text, { exact: true }).first().waitFor();
        }
        assert.ok(mock.state.asked.some((asked) => asked.includes('what=agents') && asked.includes('bot=yes')));
        await page.getByRole('tab', { name: 'Hosts' }).click();
        await page.getByRole('button', { name: 'git.example' }).click();
        await page.getByRole('button', { name: 'Remove the filter host git.example' }).waitFor();
        await until(() => lastQuestion(mock).includes('host=git.example'), 'the filter is asked for');
        await page.getByLabel('beside the period before').check();
        await page.getByText('7.7 %').waitFor();
        await page.getByLabel('Order by').selectOption('bytes');
        await until(() => mock.state.asked.some((asked) => asked.includes('/v1/logs/compare?what=hosts&by=bytes')), 'ordered by bytes');
        await page.getByLabel('Range').selectOption('7d');
        await until(() => lastQuestion(mock).includes('since=7d'), 'the range is asked for');
        await page.getByRole('button', { name: 'Remove the filter host git.example' }).click();
        await until(() => !lastQuestion(mock).includes('host='), 'the filter is gone');
        await page.getByRole('button', { name: /^Copy the command offramp logs/ }).waitFor();
    });
});

test('Requests come live, can be paused, searched and opened as a waterfall', async () => {
    await withPage({ hash: '#/requests', mock: { tailEveryMs: 20 } }, async ({ page, mock }) => {
        await row(page, '/item/').first().waitFor();
        mock.send('lost', { lost: 12 });
        await page.getByText('12 requests not shown').waitFor();
        await page.getByRole('button', { name: 'Pause' }).click();
        await page.getByRole('button', { name: 'Go on' }).click();
        await page.getByRole('tab', { name: 'Search' }).click();
        await page.getByRole('searchbox').fill('cart');
        await page.getByRole('button', { name: 'Search', exact: true }).click();
        await page.getByText("offramp logs search 'cart'").waitFor();
        assert.ok(mock.state.asked.some((asked) => asked.startsWith('GET /v1/logs/search?text=cart')));
        await row(page, '/item/1').first().getByRole('link').click();
        const story = page.getByRole('table', { name: 'Each step with its time' });
        await story.getByText('Both servers were at max_connections.').waitFor();
        assert.deepEqual(
            await story.locator('tbody th').allTextContents(),
            ['accepted', 'handshake', 'route', 'authentication', 'queue', 'connect', 'first byte', 'done'],
        );
        assert.ok(page.url().endsWith(`#/requests/${REQUEST_ID}`));
        const bars = await story.locator('.fall').evaluateAll((all) => all.map((one) => [one.style.left, one.style.width]));
        assert.notDeepEqual(bars[6], bars[4], 'the bars have their places');
        await page.getByText('alice', { exact: true }).waitFor();
    });
});

test('Routes and listeners show what leads where', async () => {
    await withPage({ hash: '#/routes' }, async ({ page }) => {
        const shop = page.getByRole('table', { name: 'Routes, as they are looked through' }).getByRole('row').filter({ hasText: 'shop.example' });
        await shop.getByText('28 ms').waitFor();
        await shop.getByText('2 of 3 up').waitFor();
        await page.getByLabel('Find a route').fill('git');
        await shop.waitFor({ state: 'detached' });
        assert.ok(page.url().endsWith('#/routes?find=git'));
        await row(page, '127.0.0.1:3000').waitFor();
        await row(page, '[::]:443').waitFor();
    });
});

test('a server is drained and gets another weight after a question', async () => {
    await withPage({ hash: '#/backends' }, async ({ page, mock }) => {
        await page.getByRole('button', { name: 'Drain 10.0.0.7:3000' }).click();
        const question = page.getByRole('dialog', { name: 'Drain 10.0.0.7:3000?' });
        await question.getByText('backend shop: server 10.0.0.7:3000: enabled -> drain').waitFor();
        await question.getByText('41 open connections').waitFor();
        assert.equal(mock.state.servers[0].state, 'up', 'nothing was done before the answer');
        await question.getByRole('button', { name: 'Cancel' }).click();
        assert.equal(mock.state.servers[0].state, 'up');
        await page.getByRole('button', { name: 'Drain 10.0.0.7:3000' }).click();
        await question.getByRole('button', { name: 'Drain' }).click();
        await row(page, '10.0.0.7:3000').getByText('draining').waitFor();
        assert.equal(mock.state.servers[0].state, 'draining');
        await page.getByRole('button', { name: 'Weight 10.0.0.8:3000' }).click();
        await page.getByLabel('Weight, 1 to 256').fill('9');
        await page.getByLabel('write it to the configuration file too').check();
        await page.getByRole('dialog').getByText('weight 2 -> 9').waitFor();
        await page.getByRole('button', { name: 'Change', exact: true }).click();
        await until(() => mock.state.servers[1].weight === 9, 'the weight is changed');
        assert.ok(mock.state.asked.some((asked) => asked.startsWith('PATCH') && asked.endsWith('?persist')), 'it was written too');
    });
});

test('connections come in pages and are closed after a question', async () => {
    await withPage({ hash: '#/connections' }, async ({ page, mock }) => {
        await page.getByText('200 connections on this page').waitFor();
        await page.getByRole('button', { name: 'Next page' }).click();
        await page.getByRole('button', { name: 'Next page' }).click();
        await page.getByText('50 connections on this page').waitFor();
        await page.getByRole('button', { name: 'Page before' }).click();
        await page.getByText('200 connections on this page').waitFor();
        await page.getByRole('button', { name: /^Close the connection of/ }).first().click();
        await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
        await page.getByText('Closed 1 connection').waitFor();
        assert.equal(mock.state.closed[0], '01a1ffe0-6b21-7000-8000-000000000200');
        await page.getByLabel('client').fill('192.0.2.0/24');
        await page.getByRole('button', { name: 'Filter' }).click();
        await page.getByRole('button', { name: 'Close all of these…' }).click();
        await page.getByRole('dialog').getByText('Every connection with client 192.0.2.0/24').waitFor();
        await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
        await page.getByText('Closed 17 connections').waitFor();
        assert.equal(mock.state.closed[1], 'client=192.0.2.0%2F24');
    });
});

test('certificates show chain, source, next renewal and the last refusal, and are renewed', async () => {
    await withPage({ hash: '#/certificates' }, async ({ page, mock }) => {
        await page.getByText('letsencrypt: DNS problem: NXDOMAIN').waitFor();
        const shop = row(page, 'www.shop.example');
        await shop.getByText('authority: letsencrypt').waitFor();
        await shop.getByText('2 certificates').click();
        await shop.getByText('E7, by ISRG Root X1').waitFor();
        await shop.getByRole('button', { name: 'Renew' }).click();
        await page.getByRole('button', { name: 'Renew now' }).click();
        await page.getByText('Renewed: valid until').waitFor();
        assert.deepEqual(mock.state.renewed, ['shop.example']);
    });
});

test('a store that is away is said where it is missed, and the rest lives', async () => {
    for (const [store, says] of [
        ['away', 'the log store does not answer'],
        ['none', 'there is no log store'],
    ]) {
        await withPage({ hash: '#/traffic', mock: { store } }, async ({ page, mock }) => {
            await page.getByRole('alert').getByText(says).waitFor();
            await goTo(page, '#/requests');
            await page.getByRole('alert').getByText(says).waitFor();
            await goTo(page, '#/now');
            await page.getByText('server 10.0.0.9:3000 is down').waitFor();
            assert.equal(await page.getByText('live', { exact: true }).count(), 1);
            mock.state.store = 'there';
            await goTo(page, '#/requests');
            await row(page, '/item/').first().waitFor();
        });
    }
});
