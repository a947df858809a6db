import assert from 'node:assert/strict';
import { test } from 'node:test';
import { goTo, until, useBrowser, withPage } from './browser.mjs';
import { FILE } from './mock-data.mjs';

useBrowser();

const AT = { hash: '#/configuration' };
const ADDED = '\n[[route]]\nlistener = "web"\nhost = "blog.example"\nserver = "127.0.0.1:4000"\n';
const area = (page) => page.getByRole('textbox', { name: 'The configuration, in TOML' });

async function plan(page, text) {
    await area(page).fill(text);
    await page.getByText('No error.').waitFor();
    await page.getByRole('button', { name: 'Plan' }).click();
}

test('a mistake is shown at its place as one types, and leads there', async () => {
    await withPage(AT, async ({ page }) => {
        await area(page).fill(FILE.replace('backend = "shop"', 'bakend = "shop"'));
        await page.getByText('1 error').waitFor();
        await page.getByText('unknown key `bakend`').waitFor();
        const line = FILE.split('\n').findIndex((text) => text.startsWith('backend =')) + 1;
        assert.equal(await page.locator('.numbers .bad').textContent(), String(line));
        assert.equal(await page.locator('mark').textContent(), 'bakend');
        assert.equal(await area(page).getAttribute('aria-invalid'), 'true');
        assert.ok(await page.getByRole('button', { name: 'Plan' }).isDisabled());
        await page.getByRole('button', { name: `line ${line}:1` }).click();
        const caret = await area(page).evaluate((field) => field.value.slice(field.selectionStart, field.selectionStart + 6));
        assert.equal(caret, 'bakend');
        await area(page).fill(FILE);
        await page.getByText('No error.').waitFor();
    });
});

test('a change is planned, applied and kept', async () => {
    await withPage(AT, async ({ page, mock }) => {
        await plan(page, FILE + ADDED);
        await page.getByText('route blog.example: added').waitFor();
        await page.getByText('41 open connections of 1200').waitFor({ timeout: 5000 });
        assert.equal(mock.state.version, 3, 'a plan changes nothing');
        await page.getByText('The lines of the file that differ').click();
        assert.match(await page.locator('pre.lines').textContent(), /\+ host = "blog.example"/);
        await page.getByRole('button', { name: 'Apply' }).click();
        const waiting = page.getByRole('region', { name: 'A change waits for you' });
        await waiting.getByText(/\d+ seconds/).waitFor();
        assert.ok(mock.state.asked.some((asked) => asked.startsWith('PUT /v1/config?') && asked.includes('confirm=60s') && asked.includes('folder=%2Fetc%2Fofframp')));
        await goTo(page, '#/now');
        await waiting.getByRole('button', { name: 'Keep' }).click();
        await waiting.waitFor({ state: 'detached' });
        assert.equal(mock.state.version, 4);
        await goTo(page, '#/configuration');
        await page.getByText('Nothing is edited.').waitFor();
        assert.ok((await area(page).inputValue()).endsWith(ADDED));
    });
});

test('a change that nobody keeps goes back by itself, and the text stays', async () => {
    await withPage({ ...AT, mock: { confirmMs: 1500 } }, async ({ page, mock }) => {
        await plan(page, FILE + ADDED);
        await page.getByRole('button', { name: 'Apply' }).click();
        const waiting = page.getByRole('region', { name: 'A change waits for you' });
        await waiting.waitFor();
        await waiting.waitFor({ state: 'detached' });
        await until(() => mock.state.text === FILE, 'it was taken back');
        await page.getByText('The change was taken back; your text is still here').waitFor();
        assert.ok((await area(page).inputValue()).endsWith(ADDED));
        assert.ok(await page.getByRole('button', { name: 'Plan' }).isEnabled());
    });
});

test('Go back takes a change back at once', async () => {
    await withPage(AT, async ({ page, mock }) => {
        await plan(page, FILE + ADDED);
        await page.getByRole('button', { name: 'Apply' }).click();
        await page.getByRole('button', { name: 'Go back' }).click();
        await until(() => mock.state.text === FILE, 'it was taken back');
        await page.getByRole('region', { name: 'A change waits for you' }).waitFor({ state: 'detached' });
        // Whichever comes first, the answer or the event: these words stay.
        await page.getByText('The change was taken back; your text is still here').waitFor();
    });
});

test('two people edit: the difference is shown, and no text is lost', async () => {
    await withPage(AT, async ({ page, mock }) => {
        await area(page).fill(FILE + ADDED);
        await page.getByText('No error.').waitFor();
        // Somebody else, whose event has not come yet.
        mock.state.version = 9;
        mock.state.text = `${FILE}# theirs\n`;
        await page.getByRole('button', { name: 'Plan' }).click();
        const conflict = page.getByRole('alert').filter({ hasText: 'Somebody else has changed the configuration' });
        await conflict.getByText('route blog.example: added').waitFor();
        assert.ok((await area(page).inputValue()).endsWith(ADDED));
        await conflict.getByRole('button', { name: /^Keep my text/ }).click();
        await conflict.waitFor({ state: 'detached' });
        await page.getByRole('button', { name: 'Plan' }).click();
        await page.getByText('The lines of the file that differ').click();
        assert.match(await page.locator('pre.lines').textContent(), /- # theirs/, 'what it would undo is shown');
        await page.getByRole('button', { name: 'Drop the edit' }).click();
        await until(async () => (await area(page).inputValue()) === `${FILE}# theirs\n`, 'their text is shown');
    });
});

test('an edit that would cut off the page says so before', async () => {
    await withPage(AT, async ({ page, mock }) => {
        await plan(page, `${FILE}\n[admin]\naddress = "127.0.0.1:9901"\n`);
        const warning = page.getByRole('alert').filter({ hasText: 'This edit would cut off this page' });
        await warning.getByText('the admin interface that this page talks to is another one (admin.address)').waitFor();
        await warning.getByText('run `offramp ui` again').waitFor();
        assert.equal(mock.state.version, 3);
    });
});

test('a site is added by four fields, which write TOML', async () => {
    await withPage({ hash: '#/configuration/site' }, async ({ page }) => {
        await page.getByRole('button', { name: 'Write it into the editor' }).click();
        await page.getByText('The name is missing.').waitFor();
        await page.getByLabel('Name', { exact: true }).fill('Blog.Example');
        await page.getByLabel('Where the application listens').fill('4000');
        await page.getByLabel(/Let’s Encrypt/).check();
        await page.getByLabel('Path').fill('/news');
        await page.getByRole('button', { name: 'Write it into the editor' }).click();
        await until(async () => (await area(page).count()) === 1, 'the editor opens');
        const text = await area(page).inputValue();
        assert.ok(
            text.endsWith(
                '\n[[certificate]]\nacme = "letsencrypt"\nnames = ["blog.example"]\n\n[[route]]\nlistener = "web"\nhost = "blog.example"\npath = "/news"\nserver = "127.0.0.1:4000"\n',
            ),
            text,
        );
        await page.getByRole('button', { name: 'Plan' }).click();
        await page.getByText('route blog.example: added').waitFor();
    });
});

test('the history leads back by one click and a question', async () => {
    await withPage({ hash: '#/configuration/history' }, async ({ page, mock }) => {
        await page.getByText('Version 3 is in force.').waitFor();
        await page.getByText('unknown key').waitFor();
        await page.getByRole('button', { name: 'Go back to version 2…' }).click();
        const question = page.getByRole('dialog', { name: 'Go back to version 2?' });
        await question.getByText('back to version 2', { exact: true }).waitFor();
        assert.equal(mock.state.version, 3);
        await question.getByRole('button', { name: 'Go back' }).click();
        await page.getByText('Version 4 is in force, as version 2 was').waitFor();
        assert.equal(mock.state.version, 4);
        const waiting = page.getByRole('region', { name: 'A change waits for you' });
        await waiting.getByText(/\d+ seconds/).waitFor();
        assert.equal(await page.getByRole('button', { name: 'Go back to version 1…' }).count(), 0, 'one change at a time');
        await waiting.getByRole('button', { name: 'Keep' }).click();
        await page.getByText('Version 4 stays in force').waitFor();
        await page.getByRole('button', { name: 'Go back to version 1…' }).waitFor();
    });
});
