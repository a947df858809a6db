/** Dark or light: as the system has it, or as somebody has chosen here. */
import { Watched } from './cell';

export type Choice = 'system' | 'dark' | 'light';

const KEY = 'offramp-theme';
const dark = window.matchMedia('(prefers-color-scheme: dark)');

function stored(): Choice {
    try {
        const value = localStorage.getItem(KEY);
        return value === 'dark' || value === 'light' ? value : 'system';
    } catch {
        return 'system';
    }
}

export const choice = new Watched<Choice>(stored());

/** Moves when the colours on the screen change: charts are drawn again. */
export const colours = new Watched<'dark' | 'light'>('dark');

function show(): void {
    const now = choice.value === 'system' ? (dark.matches ? 'dark' : 'light') : choice.value;
    document.documentElement.dataset.theme = now;
    colours.set(now);
}

export function choose(next: Choice): void {
    choice.set(next);
    try {
        localStorage.setItem(KEY, next);
    } catch {
        // Without storage the choice lasts as long as the page.
    }
    show();
}

dark.addEventListener('change', show);
show();

export function colour(name: string): string {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
