// A browser with the page in it: one for each file of tests, one fresh context and one mock for each test.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { chromium } from 'playwright-core';
import { start } from './mock.mjs';

const ARGUMENTS = ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-dev-shm-usage'];

let browser;

export function useBrowser() {
    before(async () => {
        browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ARGUMENTS });
    });
    after(() => browser?.close());
}

/** Opens the page on a mock, runs a test, and fails it for any fault that the browser reports. */
export async function withPage(options, run) {
    const { mock: mockOptions = {}, context: contextOptions = {}, hash = '#/now', login = true, url } = options;
    const mock = url === undefined ? await start(mockOptions) : null;
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...contextOptions });
    const page = await context.newPage();
    page.setDefaultTimeout(10_000);
    if (process.env.PAGE !== undefined) await useFiles(context, process.env.PAGE);
    const faults = [];
    page.on('pageerror', (error) => faults.push(String(error)));
    page.on('console', (message) => {
        // A refusal on purpose is reported by the browser as a resource that failed.
        if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) faults.push(message.text());
    });
    try {
        const at = url ?? mock.url;
        await page.goto(at + (login ? '#once=ticket-1' : hash));
        if (login) {
            await page.getByRole('navigation', { name: 'Views' }).waitFor();
            await goTo(page, hash);
        }
        await run({ page, mock, context });
        assert.deepEqual(faults, [], 'the browser reports no fault');
        assert.equal(await page.evaluate(() => window.hacked), undefined, 'no script of a logged field ran');
    } finally {
        await context.close();
        await mock?.close();
    }
}

/** Serves the files of a folder in place of those that are built into Offramp: for work on the page. */
async function useFiles(context, folder) {
    await context.route(/\/ui\/(offramp\.(js|css)|icon\.svg)?$/, async (route) => {
        const name = new URL(route.request().url()).pathname.replace('/ui/', '') || 'index.html';
        await route.fulfill({ path: `${folder}/${name}` });
    });
}

export async function goTo(page, hash) {
    await page.evaluate((hash) => {
        location.hash = hash;
    }, hash);
}

/** Waits until a condition of this process holds. */
export async function until(condition, what) {
    const end = Date.now() + 10_000;
    while (!(await condition())) {
        assert.ok(Date.now() < end, `waited in vain: ${what}`);
        await new Promise((done) => setTimeout(done, 20));
    }
}
