import assert from 'node:assert/strict';
import { test } from 'node:test';
import { goTo, until, useBrowser, withPage } from './browser.mjs';
import { start } from './mock.mjs';

useBrowser();

const OUT = { login: false };

test('the token logs in, a wrong one is refused and then made to wait', async () => {
    await withPage(OUT, async ({ page, mock }) => {
        await page.getByRole('heading', { name: 'Offramp' }).waitFor();
        assert.equal(await page.getByRole('navigation').count(), 0, 'nothing is shown before');
        const token = page.getByLabel('Token', { exact: true });
        await token.waitFor();
        assert.equal(await token.getAttribute('type'), 'password');
        for (let tries = 0; tries < 3; tries += 1) {
            await token.fill('wrong');
            await page.getByRole('button', { name: 'Log in' }).click();
            await until(() => mock.state.wrong === tries + 1, 'the token is refused');
            await page.getByRole('alert').getByText('this is not the token').waitFor();
        }
        await token.fill('wrong');
        await page.getByRole('button', { name: 'Log in' }).click();
        await page.getByRole('alert').getByText('Wait 20 s.').waitFor();
        await token.fill('correct-horse-battery');
        await page.keyboard.press('Enter');
        await page.getByText('server 10.0.0.9:3000 is down').waitFor();
        await page.getByRole('button', { name: 'Log out' }).click();
        await token.waitFor();
        assert.equal(mock.state.sessions.size, 0);
        await until(() => mock.state.streams.size === 0, 'the streams end with the session');
    });
});

test('a name and a password log in', async () => {
    await withPage(OUT, async ({ page }) => {
        await page.getByLabel('a name and a password').check();
        await page.getByLabel('Name', { exact: true }).fill('alice');
        await page.getByLabel('Password', { exact: true }).fill('rabbit');
        await page.getByRole('button', { name: 'Log in' }).click();
        await page.getByRole('navigation', { name: 'Views' }).waitFor();
    });
});

test('the link of `offramp ui` works once, and leaves no ticket in the address', async () => {
    await withPage({}, async ({ page, mock, context }) => {
        assert.ok(!page.url().includes('ticket'));
        await context.clearCookies();
        const second = await context.newPage();
        await second.goto(`${mock.url}#once=ticket-1`);
        await second.getByText('This link was used already').waitFor();
    });
});

test('a session that ends keeps what was typed', async () => {
    await withPage({ hash: '#/configuration' }, async ({ page, mock }) => {
        const area = page.getByRole('textbox', { name: 'The configuration, in TOML' });
        await area.fill('# mine\n');
        mock.state.sessions.clear();
        await page.getByText('The session has ended.').waitFor();
        await page.getByLabel('Token', { exact: true }).fill('correct-horse-battery');
        await page.keyboard.press('Enter');
        await until(async () => (await area.count()) === 1 && (await area.inputValue()) === '# mine\n', 'the text is still there');
    });
});

test('each change carries the word of the session', async () => {
    await withPage({ hash: '#/backends' }, async ({ page, mock }) => {
        await page.getByRole('button', { name: 'Drain 10.0.0.7:3000' }).waitFor();
        for (const session of mock.state.sessions.values()) session.csrf = 'another';
        await page.getByRole('button', { name: 'Drain 10.0.0.7:3000' }).click();
        await page.getByRole('dialog').getByRole('alert').getByText('X-Offramp-CSRF').first().waitFor();
        assert.equal(mock.state.servers[0].state, 'up');
    });
});

test('the page finds Offramp again after it was away', async () => {
    const first = await start({ login: false });
    const port = Number(new URL(first.url).port);
    try {
        await withPage({ url: first.url, login: false }, async ({ page }) => {
            await page.getByText('live', { exact: true }).waitFor();
            await first.close();
            await page.getByText('no answer; trying again').waitFor();
            const second = await start({ login: false }, port);
            try {
                await page.getByText('live', { exact: true }).waitFor({ timeout: 20_000 });
                await goTo(page, '#/backends');
                await page.getByRole('button', { name: 'Drain 10.0.0.7:3000' }).waitFor();
            } finally {
                await second.close();
            }
        });
    } finally {
        await first.close().catch(() => {});
    }
});

test('a hidden page leaves its streams, and takes them up again', async () => {
    await withPage({ hash: '#/requests' }, async ({ page, mock }) => {
        const open = () => [...mock.state.streams].map(({ of }) => of).sort();
        const hide = (hidden) =>
            page.evaluate((hidden) => {
                Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
                document.dispatchEvent(new Event('visibilitychange'));
            }, hidden);
        await until(() => open().join() === 'events,figures,tail', 'three streams are open');
        await hide(true);
        await until(() => open().join() === 'events', 'only the quiet stream of events stays');
        await hide(false);
        await until(() => open().join() === 'events,figures,tail', 'three streams are open again');
    });
});
