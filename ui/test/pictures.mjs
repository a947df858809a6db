// Pictures of the page on the mock, for the documentation and for whoever works on it:
// node test/pictures.mjs FOLDER [VIEW…]
import { mkdir } from 'node:fs/promises';
import { chromium } from 'playwright-core';

process.env.PLAIN = '1';
const { start } = await import('./mock.mjs');
const { figures } = await import('./mock-data.mjs');

const [folder = 'pictures', ...views] = process.argv.slice(2);
const SIZES = { desktop: { width: 1360, height: 900 }, phone: { width: 360, height: 740 } };
const SAMPLES = 300;

await mkdir(folder, { recursive: true });
const mock = await start({ everyMs: 1000 });
const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--force-color-profile=srgb'],
});
for (const colorScheme of ['dark', 'light']) {
    for (const [size, viewport] of Object.entries(SIZES)) {
        mock.state.tickets.add('ticket-1');
        const context = await browser.newContext({ viewport, colorScheme });
        const page = await context.newPage();
        await page.goto(`${mock.url}#once=ticket-1`);
        await page.getByRole('navigation').waitFor();
        for (const view of views.length > 0 ? views : ['now']) {
            await page.evaluate((view) => {
                location.hash = `#/${view}`;
            }, view);
            if (view === 'now') {
                const now = Date.now();
                for (let back = SAMPLES; back > 0; back -= 1) mock.send('figures', figures(400 - back, new Date(now - back * 1000)));
            }
            await page.waitForTimeout(900);
            const name = `${view.replace(/^requests\/.*/, 'request').replace(/\W+/g, '-')}-${size}-${colorScheme}.png`;
            await page.screenshot({ path: `${folder}/${name}` });
        }
        await context.close();
    }
}
await browser.close();
await mock.close();
