// A page that is left open: its memory has a bound, and so has what it asks for.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until, useBrowser, withPage } from './browser.mjs';
import { figures, request } from './mock-data.mjs';

useBrowser();

/** More than the page keeps: an hour of figures. */
const SAMPLES = 4000;
const REQUESTS = 4000;

test('memory and elements have a bound, however long the page is open', async () => {
    await withPage({ mock: { everyMs: 3_600_000, tailEveryMs: 3_600_000 }, hash: '#/requests' }, async ({ page, mock, context }) => {
        const protocol = await context.newCDPSession(page);
        await protocol.send('Performance.enable');
        const measured = async () => {
            await protocol.send('HeapProfiler.collectGarbage');
            const { metrics } = await protocol.send('Performance.getMetrics');
            const of = (wanted) => metrics.find(({ name }) => name === wanted).value;
            return { heap: of('JSHeapUsedSize'), nodes: of('Nodes') };
        };
        await until(() => [...mock.state.streams].length === 3, 'three streams are open');
        const begin = Date.now();
        let [second, number] = [0, 0];
        const live = async () => {
            for (let sent = 0; sent < SAMPLES; sent += 1) {
                second += 1;
                const next = figures(second, new Date(begin + second * 1000));
                // Names that never come again, as clients make them up.
                mock.send('figures', { ...next, routes: [], backends: [], clients: [{ client: `2001:db8::${second.toString(16)}`, connections: 1, bytes_per_second: 1 }] });
                if (sent % 200 === 0) await new Promise((done) => setTimeout(done, 5));
            }
            for (let sent = 0; sent < REQUESTS; sent += 1) {
                number += 1;
                mock.send('request', { ...request(number), path: `/page-${number}` });
                if (sent % 200 === 0) await new Promise((done) => setTimeout(done, 5));
            }
            await page.getByRole('row').filter({ hasText: `/page-${number}` }).first().waitFor();
        };
        await live();
        const first = await measured();
        await live();
        await live();
        const last = await measured();
        assert.equal(await page.getByRole('row').count(), 201, 'as many rows as are kept, and the header');
        assert.ok(last.heap < first.heap + 1_500_000, `the heap grows from ${first.heap} to ${last.heap} bytes`);
        assert.ok(last.nodes < first.nodes * 1.2, `elements grow from ${first.nodes} to ${last.nodes}`);
    });
});

test('many events at once cause few questions', async () => {
    await withPage({ hash: '#/backends' }, async ({ page, mock }) => {
        await page.getByRole('button', { name: 'Drain 10.0.0.7:3000' }).waitFor();
        const asked = () => mock.state.asked.filter((one) => one === 'GET /v1/status' || one === 'GET /v1/backends').length;
        const before = asked();
        for (let sent = 0; sent < 500; sent += 1) mock.event('server', { backend: 'shop', server: '10.0.0.7:3000', state: 'up' });
        mock.state.servers[0].why = 'the last event';
        mock.event('server', {});
        await page.getByText('the last event').waitFor();
        assert.ok(asked() - before < 100, `${asked() - before} questions for 501 events`);
    });
});
