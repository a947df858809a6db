// The parts that compute: without a browser.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { transformWithEsbuild } from 'vite';

async function load(name) {
    const at = new URL(`../src/${name}`, import.meta.url);
    const { code } = await transformWithEsbuild(await readFile(at, 'utf8'), at.pathname, { sourcemap: false });
    return import(`data:text/javascript,${encodeURIComponent(code)}`);
}

const { EventParser } = await load('event-parser.ts');
const { Ring, Latest } = await load('ring.ts');
const { difference } = await load('views/configuration/difference.ts');
const { address, covers, fault, quoted, toml } = await load('views/configuration/site-toml.ts');
const { cutsOff } = await load('views/configuration/cutoff.ts');
const { evenly } = await load('evenly.ts');
const format = await load('format.ts');

test('events are the same however the stream is cut', () => {
    const stream = ': comment\n\nid: 7\nevent: change\ndata: {"a":\ndata: 1}\n\ndata: "é"\r\n\r\nevent: empty\n\nevent: bad\ndata: {\n\ndata:2\n\n';
    const expected = [
        ['change', { a: 1 }, '7'],
        ['message', 'é', null],
        ['message', 2, null],
    ];
    for (let cut = 0; cut <= stream.length; cut += 1) {
        const events = [];
        const parser = new EventParser((...event) => events.push(event));
        parser.push(stream.slice(0, cut));
        parser.push(stream.slice(cut));
        assert.deepEqual(events, expected, `cut at ${cut}`);
    }
    const parser = new EventParser(() => {});
    assert.throws(() => parser.push('x'.repeat(2 << 20)), /too long/);
    const many = new EventParser(() => {});
    assert.throws(() => {
        for (let lines = 0; lines < 100; lines += 1) many.push(`data: ${'x'.repeat(20_000)}\n`);
    }, /too long/);
});

test('a ring keeps the latest samples, and its groups keep their borders', () => {
    const ring = new Ring(10, 2);
    for (let at = 0; at < 25; at += 1) ring.push([at, at === 22 ? null : 2 * at]);
    assert.equal(ring.length, 10);
    assert.deepEqual(ring.window([0], 100, 100), [[15, 16, 17, 18, 19, 20, 21, 22, 23, 24]]);
    assert.deepEqual(ring.window([0, 1], 4, 100), [
        [21, 22, 23, 24],
        [42, null, 46, 48],
    ]);
    const before = ring.window([0], 8, 2)[0];
    ring.push([25, 50]);
    const after = ring.window([0], 8, 2)[0];
    assert.deepEqual([before, after], [[21.5, 24], [21.5, 24.5]], 'the mean of a group does not move with the window');
    const latest = new Latest(3);
    latest.add([1, 2]);
    latest.add([3, 4, 5, 6]);
    assert.deepEqual(latest.items, [6, 5, 4]);
    latest.add([7]);
    assert.deepEqual(latest.items, [7, 6, 5]);
});

test('a difference leads from one text to the other', () => {
    const texts = ['', 'a', 'a\nb\nc', 'b\nc\nd', 'c\na\nb', Array.from({ length: 40 }, (_, at) => `line ${at}`).join('\n')];
    texts.push(texts[5].replace('line 7\n', '').replace('line 20', 'line twenty'));
    for (const before of texts) {
        for (const after of texts) {
            const lines = difference(before, after);
            if (before === after) assert.deepEqual(lines, []);
            const of = (signs) => lines.filter(({ sign }) => signs.includes(sign)).map(({ text }) => text);
            const within = (part, whole) => {
                let from = 0;
                return part.every((line) => (from = whole.indexOf(line, from) + 1) > 0);
            };
            assert.ok(within(of(' -'), before.split('\n')) && within(of(' +'), after.split('\n')), `${before} to ${after}`);
            const gained = after.split('\n').length - before.split('\n').length;
            assert.equal(of('+').length - of('-').length, gained, `${before} to ${after}`);
        }
    }
    const large = Array.from({ length: 5000 }, (_, at) => `line ${at}`);
    const shown = difference(large.join('\n'), large.map((line, at) => (at % 1000 === 500 ? 'new' : line)).join('\n'));
    assert.ok(shown.length < 9000);
});

test('a site fits what is there', () => {
    const site = { name: 'new.example', server: '3000', certificate: 'local', path: '' };
    const around = { listeners: ['web'], others: false, hosts: [], certificates: [], acme: false };
    const route = '[[route]]\nhost = "new.example"\nserver = "127.0.0.1:3000"\n';
    const item = (kind, ...names) => `[[certificate]]\n${kind}\nnames = [${names.map((name) => `"${name}"`).join(', ')}]\n\n`;
    const acme = 'acme = "letsencrypt"';
    for (const [what, changes, given, expected] of [
        ['nothing is there', {}, {}, route],
        ['the local CA issues for all hosts', {}, { hosts: ['old.example'] }, route],
        ['the first item of an authority keeps the local CA for the others', { certificate: 'acme' }, { hosts: ['old.example'] }, item('local = true', 'old.example') + item(acme, 'new.example') + route],
        ['an authority for the only host', { certificate: 'acme' }, {}, item(acme, 'new.example') + route],
        ['a wildcard covers it', {}, { certificates: [{ names: ['*.example'], acme: false, implied: false }] }, route],
        ['a wildcard of the other kind covers it', { certificate: 'acme' }, { certificates: [{ names: ['*.example'], acme: false, implied: false }] }, item(acme, 'new.example') + route],
        ['items do not cover it', {}, { certificates: [{ names: ['old.example'], acme: true, implied: false }] }, item('local = true', 'new.example') + route],
        ['an authority issues for all hosts', { certificate: 'acme' }, { acme: true }, route],
        ['an authority issues for all other hosts', {}, { acme: true }, item('local = true', 'new.example') + route],
        ['an implied item is not written', {}, { certificates: [{ names: ['old.example'], acme: false, implied: true }] }, route],
        ['other listeners exist', {}, { others: true }, route.replace('host', 'listener = "web"\nhost')],
        ['two listeners are for sites', {}, { others: true, listeners: ['a', 'b'] }, route.replace('host', 'listener = ["a", "b"]\nhost')],
        ['a path and a socket', { path: '/x', server: 'unix:/run/a.sock' }, {}, '[[route]]\nhost = "new.example"\npath = "/x"\nserver = "unix:/run/a.sock"\n'],
    ]) {
        assert.equal(toml({ ...site, ...changes }, { ...around, ...given }), expected, what);
    }
    assert.equal(quoted('a"b\\c\n\u007f'), '"a\\"b\\\\c\\u000a\\u007f"');
    assert.deepEqual(['*.example', 'a.example', 'b.a.example', 'example'].map((pattern) => covers(pattern, 'a.example')), [true, true, false, false]);
});

test('the fields of a site are checked', () => {
    const good = { name: 'a.example', server: '3000', certificate: 'local', path: '' };
    const faults = (changes) => fault({ ...good, ...changes }).map(({ field }) => field).join();
    assert.equal(faults({}), '');
    for (const name of ['', 'https://a.example', 'a.example:443', 'a_b', '-a.example', 'a b', 'a"b', '*.*.example']) assert.equal(faults({ name }), 'name', name);
    for (const name of ['localhost', 'A.Example', '*.a.example', 'xn--bcher-kva.example']) assert.equal(faults({ name }), '', name);
    assert.equal(faults({ name: '*.a.example', certificate: 'acme' }), 'name');
    for (const server of ['', '0', '65536', 'app', 'unix:run.sock', 'http://a:1', 'a:b']) assert.equal(faults({ server }), 'server', server);
    for (const [server, written] of [
        ['3000', '127.0.0.1:3000'],
        [' app:3000 ', 'app:3000'],
        ['[::1]:3000', '[::1]:3000'],
        ['unix:/run/app.sock', 'unix:/run/app.sock'],
    ]) {
        assert.equal(address(server), written);
    }
    assert.equal(faults({ path: 'shop' }), 'path');
});

test('figures are as people read them', () => {
    for (const [shown, expected] of [
        [format.bytes(0), '0 B'],
        [format.bytes(1023), '1,023 B'],
        [format.bytes(1536), '1.5 KiB'],
        [format.bytes(1024 ** 3), '1 GiB'],
        [format.rate(0), '0'],
        [format.rate(0.0123), '0.01'],
        [format.rate(1234.5), '1,235'],
        [format.rate(null), '–'],
        [format.milliseconds(0.012), '12 µs'],
        [format.milliseconds(12.34), '12.3 ms'],
        [format.milliseconds(61_000), '1 min 1 s'],
        [format.seconds(93_784), '1 d 2 h'],
        [format.plural(1, 'server'), '1 server'],
        [format.plural(1000, 'server'), '1,000 servers'],
        [format.text([1, null]), '1, –'],
        [format.clock('nonsense'), '–'],
    ]) {
        assert.equal(shown, expected);
    }
});

test('edits that cut the page off are known', () => {
    const report = { needs_an_upgrade: [], touched: { closes: [] } };
    const page = { port: '9901', protocol: 'http:' };
    for (const [changes, at, expected] of [
        [{}, page, 0],
        [{ needs_an_upgrade: ['workers', 'log_store.url', 'users'] }, page, 0],
        [{ needs_an_upgrade: ['admin.address', 'workers'] }, page, 1],
        [{ needs_an_upgrade: ['state_dir'] }, page, 1],
        [{ needs_an_upgrade: ['user'] }, page, 1],
        [{ touched: { closes: ['127.0.0.1:19901'] } }, page, 0],
        [{ touched: { closes: ['[::]:9901'] } }, page, 1],
        [{ touched: { closes: ['0.0.0.0:443'] } }, { port: '', protocol: 'https:' }, 1],
        [{ touched: { closes: ['0.0.0.0:443'] } }, { port: '', protocol: 'http:' }, 0],
    ]) {
        assert.equal(cutsOff({ ...report, ...changes }, { interface: 'tcp' }, at).length, expected, JSON.stringify(changes));
    }
});

test('intervals without a request are drawn as nothing', () => {
    assert.deepEqual(evenly([0, 60, 240], [[5, 6, 7], [1, 2, 3]]), [[0, 60, 120, 180, 240], [5, 6, 0, 0, 7], [1, 2, 0, 0, 3]]);
    assert.deepEqual(evenly([], [[]]), [[], []]);
    assert.deepEqual(evenly([7], [[1]]), [[7], [1]]);
    const day = 86_400;
    // Months of 28 and 31 days, and a day of 25 hours.
    assert.deepEqual(evenly([0, 31 * day, 59 * day, 90 * day], [[1, 2, 3, 4]])[1], [1, 2, 3, 4]);
    assert.deepEqual(evenly([0, day, 2 * day + 3600], [[1, 2, 3]])[1], [1, 2, 3]);
    assert.equal(evenly([0, 1, 1e9], [[1, 2, 3]])[0].length, 3, 'a curve has a bound');
});
