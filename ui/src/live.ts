/** The streams that the whole page shares: figures each second, and events as they happen. */
import { get, Problem } from './api';
import { Watched } from './cell';
import { Ring } from './ring';
import { Stream } from './stream';
import type { Figures, Status } from './types';

/** An hour at one sample a second. */
const KEPT = 3600;
/** A longer distance than this between two samples is drawn as a gap. */
const GAP_S = 5;

const COLUMNS = [
    'at',
    'requests',
    '2xx',
    '3xx',
    '4xx',
    '5xx',
    'open',
    'accepted',
    'full',
    'resumed',
    'failed',
    'in',
    'out',
    'p50',
    'p95',
    'p99',
] as const;

export type Measure = (typeof COLUMNS)[number];

export const column = (measure: Measure): number => COLUMNS.indexOf(measure);

export const figures = new Watched<Figures | null>(null);
export const history = new Ring(KEPT, COLUMNS.length);
export const status = new Watched<Status | null>(null);
export const statusProblem = new Watched<Problem | null>(null);

/** Counts events of each kind: what depends on a kind is read again when its count moves. */
export const happened = new Watched<Readonly<Record<string, number>>>({});

let lastSample = 0;

function sample(next: Figures): void {
    const at = Date.parse(next.at) / 1000;
    if (!Number.isFinite(at)) return;
    if (lastSample !== 0 && at - lastSample > GAP_S) history.push([lastSample + 1]);
    lastSample = at;
    const classes = next.requests.by_class ?? {};
    history.push([
        at,
        next.requests.per_second,
        classes['2xx'],
        classes['3xx'],
        classes['4xx'],
        classes['5xx'],
        next.connections.open,
        next.connections.accepted_per_second,
        next.handshakes.full_per_second,
        next.handshakes.resumed_per_second,
        next.handshakes.failed_per_second,
        next.bytes.in_per_second,
        next.bytes.out_per_second,
        next.latency_ms?.p50,
        next.latency_ms?.p95,
        next.latency_ms?.p99,
    ]);
    figures.set(next);
}

export const figureStream = new Stream(
    '/v1/figures',
    (name, data) => {
        if (name === 'figures' || name === 'message') sample(data as Figures);
    },
    { pausesHidden: true },
);

/** Stays open while the page is hidden: it is quiet, and shows that the page still exists. */
export const eventStream = new Stream(
    '/v1/events',
    (kind) => {
        const before = happened.value;
        happened.set({ ...before, [kind]: (before[kind] ?? 0) + 1 });
        refreshStatus();
    },
    { pausesHidden: false, resumes: true },
);

let refreshing: ReturnType<typeof setTimeout> | undefined;

/** Reads the status soon; many events in a row cause one reading. */
export function refreshStatus(): void {
    if (refreshing !== undefined) return;
    refreshing = setTimeout(() => {
        refreshing = undefined;
        get<Status>('/v1/status').then(
            (value) => {
                status.set(value);
                statusProblem.set(null);
            },
            (error: unknown) => {
                if (error instanceof Problem) statusProblem.set(error);
            },
        );
    }, 50);
}

const STATUS_EVERY_MS = 15_000;
let ticking: ReturnType<typeof setInterval> | undefined;

export function begin(): void {
    refreshStatus();
    figureStream.open();
    eventStream.open();
    ticking ??= setInterval(() => {
        if (!document.hidden) refreshStatus();
    }, STATUS_EVERY_MS);
}

export function end(): void {
    figureStream.close();
    eventStream.close();
    clearInterval(ticking);
    ticking = undefined;
}
