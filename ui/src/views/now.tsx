/** The present: rates, latencies, causes, workers, and what needs somebody. */
import { useMemo, useState } from 'preact/hooks';
import { useWatched } from '../cell';
import { byteRate, bytes, count, milliseconds, rate } from '../format';
import { column, figures, figureStream, history, type Measure } from '../live';
import { Chart, type Curve } from '../parts/chart';
import { ProblemBox } from '../parts/problem';
import { WhyButton } from '../parts/why';
import type { Why } from '../why';
import { Attention } from './attention';
import { Causes, Clients, Hosts, Limits, Workers } from './figures';

/** Points of a curve: more are not seen, and cost time to draw. */
const POINTS = 300;
const DRAWN_EVERY_S = 2;
const RANGES = { '5 minutes': 300, '1 hour': 3600 } as const;
type Range = keyof typeof RANGES;

interface Plot {
    title: string;
    measures: Measure[];
    curves: Curve[];
    show: (value: number | null | undefined) => string;
    binary?: boolean;
}

const PLOTS: readonly Plot[] = [
    {
        title: 'Requests per second',
        measures: ['2xx', '3xx', '4xx', '5xx'],
        curves: [
            { label: '2xx', colour: 'good', fill: true },
            { label: '3xx', colour: 'calm' },
            { label: '4xx', colour: 'warn' },
            { label: '5xx', colour: 'bad' },
        ],
        show: rate,
    },
    {
        title: 'Latency',
        measures: ['p50', 'p95', 'p99'],
        curves: [
            { label: 'p50', colour: 'good' },
            { label: 'p95', colour: 'warn' },
            { label: 'p99', colour: 'bad' },
        ],
        show: milliseconds,
    },
    {
        title: 'Bytes per second',
        measures: ['in', 'out'],
        curves: [
            { label: 'in', colour: 'calm' },
            { label: 'out', colour: 'good', fill: true },
        ],
        show: bytes,
        binary: true,
    },
    {
        title: 'Open connections',
        measures: ['open'],
        curves: [{ label: 'open', colour: 'calm', fill: true }],
        show: rate,
    },
    {
        title: 'Accepted per second',
        measures: ['accepted'],
        curves: [{ label: 'accepted', colour: 'calm', fill: true }],
        show: rate,
    },
    {
        title: 'Handshakes per second',
        measures: ['full', 'resumed', 'failed'],
        curves: [
            { label: 'full', colour: 'good' },
            { label: 'resumed', colour: 'calm' },
            { label: 'failed', colour: 'bad' },
        ],
        show: rate,
    },
];

export function Now() {
    const now = useWatched(figures);
    const problem = useWatched(figureStream.problem);
    const state = useWatched(figureStream.state);
    const [range, setRange] = useState<Range>('5 minutes');
    return (
        <>
            <h1 class="hidden">Now</h1>
            <Attention />
            {problem && state === 'away' && <ProblemBox problem={problem} />}
            <section class="summary" aria-label="Totals now">
                <Total label="requests/s" value={rate(now?.requests.per_second)} />
                <Total label="5xx/s" value={rate(now?.requests.by_class?.['5xx'])} why={(now?.requests.by_class?.['5xx'] ?? 0) > 0 ? FAILURES : null} />
                <Total label="p95" value={milliseconds(now?.latency_ms?.p95)} />
                <Total label="connections" value={count(now?.connections.open)} />
                <Total label="in" value={byteRate(now?.bytes.in_per_second)} />
                <Total label="out" value={byteRate(now?.bytes.out_per_second)} />
                <label class="range">
                    <span class="hidden">Curves over the last</span>
                    <select value={range} onChange={(event) => setRange(event.currentTarget.value as Range)}>
                        {Object.keys(RANGES).map((name) => (
                            <option key={name}>{name}</option>
                        ))}
                    </select>
                </label>
            </section>
            <Curves range={range} />
            <div class="grid">
                <Causes now={now} />
                <Limits now={now} />
                <Workers now={now} />
                <Hosts now={now} />
                <Clients now={now} />
            </div>
        </>
    );
}

const FAILURES: Why = { heading: 'Why do requests end with 5xx?', query: { about: '502' } };

function Total({ label, value, why = null }: { label: string; value: string; why?: Why | null }) {
    return (
        <p class={why ? 'total bad' : 'total'}>
            <b>{value}</b> {label} {why && <WhyButton question={why} />}
        </p>
    );
}

/** Draws every other second over five minutes, and every twelve over an hour: more often shows little and costs most. */
function Curves({ range }: { range: Range }) {
    const now = useWatched(figures);
    const samples = RANGES[range];
    const every = Math.max(DRAWN_EVERY_S, Math.ceil(samples / POINTS));
    const tick = now === null ? 0 : Math.floor(Date.parse(now.at) / 1000 / every);
    const drawn = useMemo(() => {
        const width = PLOTS.map(({ measures }) => ['at' as const, ...measures].map(column));
        return width.map((columns) => history.window(columns, samples, POINTS));
    }, [tick, samples]);
    return (
        <div class="charts">
            {PLOTS.map(({ title, curves, show, binary = false }, at) => (
                <Chart key={title} title={title} curves={curves} data={drawn[at] ?? []} show={show} binary={binary} />
            ))}
        </div>
    );
}
