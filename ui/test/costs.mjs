// What the page costs, on a running Offramp: its first paint, and the CPU time while the view Now is looked at.
// offramp ui --no-open -c FILE, then: node test/costs.mjs LINK [SECONDS] [PID…]
// LINK is good once: it is opened first, and the page is loaded again for each paint. PID are processes to watch beside the
// browser, such as `offramp run` and `offramp ui`.
import { readFile } from 'node:fs/promises';
import { chromium } from 'playwright-core';

const [link, seconds = '60', ...processes] = process.argv.slice(2);
const PAINTS = 11;
/** The unit of /proc/PID/stat (proc(5)): 100 ticks a second on every Linux in use. */
const TICK_MS = 10;

const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-dev-shm-usage'],
});
const page = await browser.newPage({ viewport: { width: 1360, height: 900 } });
await page.goto(link);
await page.getByRole('navigation', { name: 'Views' }).waitFor();

const paints = [];
for (let round = 0; round < PAINTS; round += 1) {
    await page.reload();
    await page.getByRole('navigation', { name: 'Views' }).waitFor();
    paints.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime));
}
paints.sort((one, other) => one - other);
console.log(`first paint: median ${paints[PAINTS >> 1].toFixed(0)} ms, ${paints[0].toFixed(0)} to ${paints.at(-1).toFixed(0)} ms`);

const session = await page.context().newCDPSession(page);
await session.send('Performance.enable');
async function costs() {
    const { metrics } = await session.send('Performance.getMetrics');
    const metric = (name) => metrics.find((one) => one.name === name).value * 1000;
    const rest = processes.map(async (pid) => {
        const stat = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1].split(' ');
        return (Number(stat[11]) + Number(stat[12])) * TICK_MS;
    });
    return [metric('ThreadTime'), metric('ProcessTime'), ...(await Promise.all(rest))];
}
await page.waitForTimeout(5000);
const before = await costs();
await page.waitForTimeout(Number(seconds) * 1000);
const after = await costs();
const names = ['main thread of the page', 'all threads of its process', ...processes.map((pid) => `process ${pid}`)];
names.forEach((name, at) => console.log(`${name}: ${((after[at] - before[at]) / (Number(seconds) * 10)).toFixed(2)} % of a core`));
await browser.close();
