// For everybody: the keyboard alone, screen readers, small screens, both colours; and strangers' script as text.
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { goTo, until, useBrowser, withPage } from './browser.mjs';
import { SCRIPT, SCRIPT_ID } from './mock-data.mjs';

useBrowser();

const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const VIEWS = [
    ['#/now', 'The heaviest hosts'],
    ['#/traffic?what=hosts', 'Hosts'],
    ['#/requests', 'The latest requests'],
    ['#/requests?text=', 'Requests that were found'],
    [`#/requests/${SCRIPT_ID}`, 'Each step with its time'],
    ['#/routes', 'Routes, as they are looked through'],
    ['#/backends', 'Servers of shop'],
    ['#/connections', 'Open connections'],
    ['#/certificates', 'Certificates in use'],
];

const findings = (page) =>
    page.evaluate(async () => {
        const { violations } = await window.axe.run();
        return violations
            .filter(({ impact }) => impact === 'serious' || impact === 'critical')
            .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html).join(' ')}`);
    });

for (const colorScheme of ['dark', 'light']) {
    test(`axe has no serious finding in ${colorScheme}`, async () => {
        await withPage({ context: { colorScheme, bypassCSP: true } }, async ({ page }) => {
            await page.evaluate(AXE);
            for (const [hash, table] of VIEWS) {
                await goTo(page, hash);
                await page.getByRole('table', { name: table }).getByRole('row').nth(1).waitFor();
                assert.deepEqual(await findings(page), [], hash);
            }
            for (const hash of ['#/configuration', '#/configuration/site', '#/configuration/history']) {
                await goTo(page, hash);
                await page.locator('textarea, form.site, ol.history').first().waitFor();
                assert.deepEqual(await findings(page), [], hash);
            }
            await goTo(page, '#/backends');
            await page.getByRole('button', { name: 'Why is 10.0.0.9:3000 down?' }).click();
            await page.getByText('nothing listens there').waitFor();
            assert.deepEqual(await findings(page), [], 'the panel');
            await page.keyboard.press('Escape');
            await page.getByRole('button', { name: 'Drain 10.0.0.7:3000' }).click();
            await page.getByRole('dialog').getByText('41 open connections').waitFor();
            assert.deepEqual(await findings(page), [], 'a question');
        });
        await withPage({ login: false, context: { colorScheme, bypassCSP: true } }, async ({ page }) => {
            await page.getByLabel('Token', { exact: true }).waitFor();
            await page.evaluate(AXE);
            assert.deepEqual(await findings(page), [], 'the login');
        });
    });
}

test('nothing is wider than a telephone', async () => {
    await withPage({ context: { viewport: { width: 360, height: 740 } } }, async ({ page }) => {
        for (const [hash, table] of VIEWS) {
            await goTo(page, hash);
            await page.getByRole('table', { name: table }).getByRole('row').nth(1).waitFor();
            const [wide, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
            assert.ok(wide <= screen, `${hash}: ${wide} of ${screen}`);
        }
        for (const hash of ['#/configuration', '#/configuration/site', '#/configuration/history']) {
            await goTo(page, hash);
            await page.locator('textarea, form.site, ol.history').first().waitFor();
            const [wide, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
            assert.ok(wide <= screen, `${hash}: ${wide} of ${screen}`);
        }
    });
});

test('the keyboard alone drains a server', async () => {
    await withPage({}, async ({ page, mock }) => {
        await page.evaluate(() => document.activeElement?.blur());
        await page.keyboard.press('Tab');
        assert.equal(await page.evaluate(() => document.activeElement?.textContent), 'Skip to the content');
        await page.keyboard.press('Enter');
        assert.equal(await page.evaluate(() => document.activeElement?.id), 'main');
        const tabTo = async (name) => {
            for (let presses = 0; presses < 80; presses += 1) {
                await page.keyboard.press('Tab');
                const at = await page.evaluate(() => {
                    const { activeElement: on } = document;
                    const { outlineStyle } = getComputedStyle(on);
                    return [on.getAttribute('aria-label') ?? on.textContent, outlineStyle];
                });
                if (at[0] === name) {
                    assert.notEqual(at[1], 'none', `the focus on ${name} is seen`);
                    return;
                }
            }
            assert.fail(`the Tab key does not lead to ${name}`);
        };
        await page.evaluate(() => document.activeElement?.blur());
        await tabTo('Backends');
        await page.keyboard.press('Enter');
        await page.getByRole('button', { name: 'Drain 10.0.0.7:3000' }).waitFor();
        await tabTo('Drain 10.0.0.7:3000');
        await page.keyboard.press('Enter');
        await page.getByRole('dialog').getByText('41 open connections').waitFor();
        await page.keyboard.press('Escape');
        await page.getByRole('dialog').waitFor({ state: 'detached' });
        assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')), 'Drain 10.0.0.7:3000', 'the focus comes back');
        await page.keyboard.press('Enter');
        await page.getByRole('dialog').getByText('41 open connections').waitFor();
        await tabTo('Drain');
        await page.keyboard.press('Enter');
        await until(() => mock.state.servers[0].state === 'draining', 'it drains');
    });
});

test('tabs are one stop, and the arrows move within', async () => {
    await withPage({ hash: '#/traffic' }, async ({ page }) => {
        await page.getByRole('tab', { name: 'Over time' }).focus();
        await page.keyboard.press('ArrowRight');
        assert.equal(await page.evaluate(() => document.activeElement?.textContent), 'Hosts');
        assert.equal(await page.getByRole('tab', { name: 'Hosts' }).getAttribute('aria-selected'), 'true');
        await page.keyboard.press('End');
        assert.equal(await page.evaluate(() => document.activeElement?.textContent), 'Visitors');
        await page.keyboard.press('Tab');
        assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('role')), null);
    });
});

test('script in every logged field is shown as text', async () => {
    await withPage({ mock: { tailEveryMs: 20 } }, async ({ page }) => {
        const places = [
            ['#/now', 'table[aria-hidden], table'],
            ['#/traffic?what=hosts', 'table'],
            ['#/traffic?what=pages', 'table'],
            ['#/traffic?what=referrers', 'table'],
            ['#/traffic?what=agents', 'table'],
            ['#/traffic?what=errors', 'table'],
            [`#/traffic?what=hosts&host=${encodeURIComponent(SCRIPT)}`, '.chip'],
            [`#/requests?text=${encodeURIComponent(SCRIPT)}`, 'table'],
            ['#/requests', 'table'],
            [`#/requests/${SCRIPT_ID}`, '.facts'],
            [`#/requests/${SCRIPT_ID}`, '.waterfall'],
            [`#/requests/${SCRIPT_ID}`, 'h1'],
            [`#/requests/${SCRIPT}`, 'h1'],
            ['#/routes', 'table'],
            ['#/backends', 'table'],
            ['#/connections', 'table'],
            ['#/certificates', 'table'],
            ['#/configuration/history', '.history'],
        ];
        for (const [hash, selector] of places) {
            await goTo(page, hash);
            await page.locator(selector).filter({ hasText: SCRIPT }).first().waitFor();
        }
        const named = await page.evaluate(async () => {
            location.hash = '#/requests/01a1ffe0-6b23-7000-8000-0000deadbeef';
            await new Promise((done) => setTimeout(done, 300));
            return [...document.querySelectorAll('.facts dt')].filter((dt) => dt.nextElementSibling?.textContent?.includes('<img')).map((dt) => dt.textContent);
        });
        assert.deepEqual(named, ['host', 'path', 'referer', 'agent', 'user', 'sni', 'client cn', 'headers']);
        await goTo(page, '#/backends');
        await page.getByRole('button', { name: 'Why is 10.0.0.9:3000 down?' }).click();
        await page.getByRole('complementary').getByText(SCRIPT).first().waitFor();
        assert.equal(await page.locator('img').count(), 0, 'no element was made of it');
    });
});

test('no source makes elements of text', async () => {
    const forbidden = /innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|createContextualFragment|DOMParser|\beval\(|new Function|style="/;
    const folders = ['../src/'];
    let files = 0;
    while (folders.length > 0) {
        const folder = new URL(folders.pop(), import.meta.url);
        for (const entry of await readdir(folder, { withFileTypes: true })) {
            const at = new URL(entry.name + (entry.isDirectory() ? '/' : ''), folder);
            if (entry.isDirectory()) folders.push(at.href);
            else {
                files += 1;
                assert.doesNotMatch(await readFile(at, 'utf8'), forbidden, entry.name);
            }
        }
    }
    assert.ok(files > 30);
    assert.doesNotMatch(await readFile(new URL('../../crates/admin/page/index.html', import.meta.url), 'utf8'), /<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=/);
});
