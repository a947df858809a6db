/** Curves over the latest minutes, drawn by uPlot; the figures beside them are text. */
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { useWatched } from '../cell';
import { clock } from '../format';
import { colour, colours } from '../theme';
import type { Series } from '../ring';

export interface Curve {
    label: string;
    /** The name of a colour of the style sheet. */
    colour: string;
    fill?: boolean;
}

export interface ChartProps {
    title: string;
    curves: readonly Curve[];
    /** Times in seconds, then a series for each curve. */
    data: readonly Series[];
    show: (value: number | null | undefined) => string;
    height?: number;
    /** Distances of the lines of a scale in bytes: powers of two, as its figures are. */
    binary?: boolean;
}

export function Chart({ title, curves, data, show, height = 108, binary = false }: ChartProps) {
    const box = useRef<HTMLDivElement>(null);
    const plot = useRef<uPlot | null>(null);
    const latest = useRef(data);
    latest.current = data;
    const scheme = useWatched(colours);
    const [pointed, setPointed] = useState<number | null>(null);

    useEffect(() => {
        const place = box.current;
        if (!place) return undefined;
        const scale = textScale();
        const tall = Math.round(height * scale * (window.innerHeight > HIGH_SCREEN ? 1.7 : 1));
        const made = new uPlot(options(place, curves, { show, binary, height: tall, scale }, setPointed), aligned(latest.current), place);
        plot.current = made;
        const resized = new ResizeObserver(() => made.setSize({ width: place.clientWidth, height: tall }));
        resized.observe(place);
        return () => {
            resized.disconnect();
            made.destroy();
            plot.current = null;
        };
    }, [scheme, height]);

    useEffect(() => {
        plot.current?.setData(aligned(data));
    }, [data]);

    const times = data[0] ?? [];
    const at = pointed === null || pointed >= times.length ? times.length - 1 : pointed;
    const words = curves.map(({ label }, index) => `${label} ${show(data[index + 1]?.[at])}`).join(', ');
    return (
        <figure class="chart">
            <figcaption>
                <span class="title">{title}</span>
                <span class="legend">
                    {curves.map(({ label, colour }, index) => (
                        <span key={label}>
                            <i class={`key ${colour}`} aria-hidden="true" />
                            {label} <b>{show(data[index + 1]?.[at])}</b>
                        </span>
                    ))}
                    {pointed !== null && <span class="dim">{clock((times[at] ?? 0) * 1000)}</span>}
                </span>
            </figcaption>
            <div ref={box} role="img" aria-label={`${title}: ${words}`} class="curves" />
        </figure>
    );
}

function aligned(data: readonly Series[]): uPlot.AlignedData {
    return data as unknown as uPlot.AlignedData;
}

/** Pixels from which a screen has room for higher curves. */
const HIGH_SCREEN = 1200;

/** 1 B to 32 PiB. */
const POWERS = Array.from({ length: 56 }, (_, power) => 2 ** power);

const FONT = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';

/** The size of text beside that of an ordinary screen: larger on a wall. */
function textScale(): number {
    return (parseFloat(getComputedStyle(document.documentElement).fontSize) || 14) / 14;
}

function options(
    place: HTMLElement,
    curves: readonly Curve[],
    { show, binary, height, scale }: Pick<ChartProps, 'show' | 'binary'> & { height: number; scale: number },
    point: (index: number | null) => void,
): uPlot.Options {
    const dim = colour('dim');
    const line = colour('line');
    const common = { stroke: dim, font: `${Math.round(11 * scale)}px ${FONT}`, ticks: { show: false }, grid: { stroke: line, width: 1 } };
    const steps = binary ? { incrs: POWERS } : {};
    return {
        width: place.clientWidth,
        height,
        padding: [6, 4, 0, 0],
        legend: { show: false },
        cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
        scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] } },
        axes: [
            { ...common, size: 20 * scale, gap: 3, space: 90 * scale, values: (_, ticks) => ticks.map((tick) => clock(tick * 1000).slice(-8, -3)) },
            { ...common, ...steps, size: 62 * scale, gap: 4, space: 26 * scale, values: (_, ticks) => ticks.map((tick) => show(tick)) },
        ],
        series: [
            {},
            ...curves.map((curve) => {
                const stroke = colour(curve.colour);
                const series: uPlot.Series = { stroke, width: 1.25, points: { show: false } };
                if (curve.fill) series.fill = `${stroke}2e`;
                return series;
            }),
        ],
        hooks: {
            setCursor: [(drawn) => point(drawn.cursor.left === undefined || drawn.cursor.left < 0 ? null : (drawn.cursor.idx ?? null))],
        },
    };
}
