/** Figures as people read them. */

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'] as const;

export const ABSENT = '–';

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const hundredth = new Intl.NumberFormat('en', { maximumFractionDigits: 2 });

export function count(value: number | null | undefined): string {
    return value === null || value === undefined || !Number.isFinite(value) ? ABSENT : whole.format(value);
}

/** A rate: more digits where it is small. */
export function rate(value: number | null | undefined): string {
    if (value === null || value === undefined || !Number.isFinite(value)) return ABSENT;
    if (value === 0) return '0';
    if (value < 1) return hundredth.format(value);
    return value < 100 ? tenth.format(value) : whole.format(value);
}

export function bytes(value: number | null | undefined): string {
    if (value === null || value === undefined || !Number.isFinite(value)) return ABSENT;
    let unit = 0;
    let rest = value;
    while (rest >= 1024 && unit < UNITS.length - 1) {
        rest /= 1024;
        unit += 1;
    }
    return `${unit === 0 ? whole.format(rest) : rest < 10 ? hundredth.format(rest) : tenth.format(rest)} ${UNITS[unit]}`;
}

export function byteRate(value: number | null | undefined): string {
    const text = bytes(value);
    return text === ABSENT ? text : `${text}/s`;
}

export function milliseconds(value: number | null | undefined): string {
    if (value === null || value === undefined || !Number.isFinite(value)) return ABSENT;
    if (value < 0.001) return '0 ms';
    if (value < 1) return `${whole.format(value * 1000)} µs`;
    if (value < 1000) return `${value < 10 ? hundredth.format(value) : value < 100 ? tenth.format(value) : whole.format(value)} ms`;
    return seconds(value / 1000);
}

export function seconds(value: number | null | undefined): string {
    if (value === null || value === undefined || !Number.isFinite(value)) return ABSENT;
    if (value < 10) return `${hundredth.format(value)} s`;
    if (value < 60) return `${whole.format(value)} s`;
    if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
    if (value < 86_400) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
    return `${Math.floor(value / 86_400)} d ${Math.floor((value % 86_400) / 3600)} h`;
}

export function percent(value: number | null | undefined): string {
    return value === null || value === undefined || !Number.isFinite(value) ? ABSENT : `${tenth.format(value)} %`;
}

const pad = (value: number) => String(value).padStart(2, '0');

/** A time in the browser's zone: 14:03:07, with the day where it is another one. */
export function clock(time: string | number | null | undefined): string {
    const date = time === null || time === undefined ? null : new Date(time);
    if (date === null || Number.isNaN(date.getTime())) return ABSENT;
    const text = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
    return date.toDateString() === new Date().toDateString() ? text : `${day(date)} ${text}`;
}

export function day(time: string | number | Date | null | undefined): string {
    const date = time === null || time === undefined ? null : new Date(time);
    if (date === null || Number.isNaN(date.getTime())) return ABSENT;
    return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

export function text(value: unknown): string {
    if (value === null || value === undefined || value === '') return ABSENT;
    if (Array.isArray(value)) return value.map(text).join(', ');
    return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** A word of the API as words: `connect_refused` is "connect refused". */
export function words(name: string): string {
    return name.replace(/_/g, ' ');
}

export function plural(number: number, one: string, many = `${one}s`): string {
    return `${count(number)} ${number === 1 ? one : many}`;
}
