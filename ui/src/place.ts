/** The place in the page: `#/view/rest?query`. Every view, filter and opened request has an address of its own. */
import { Watched } from './cell';

export interface Place {
    view: string;
    rest: string[];
    query: URLSearchParams;
}

export function parse(hash: string): Place {
    const [path = '', query = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s, 2);
    const parts = path.split('/').map((part) => {
        try {
            return decodeURIComponent(part);
        } catch {
            return part;
        }
    });
    const [view = '', ...rest] = parts;
    return { view: view || 'now', rest, query: new URLSearchParams(query) };
}

export const place = new Watched<Place>(parse(location.hash));

window.addEventListener('hashchange', () => place.set(parse(location.hash)));

export function href(view: string, rest: string[] = [], query?: URLSearchParams): string {
    const path = [view, ...rest.map(encodeURIComponent)].join('/');
    const text = query?.toString() ?? '';
    return text === '' ? `#/${path}` : `#/${path}?${text}`;
}

export function go(target: string): void {
    if (location.hash !== target) location.hash = target;
}

/** The query of the place with some names set anew; `null` takes one away. */
export function altered(query: URLSearchParams, changes: Record<string, string | null>): URLSearchParams {
    const next = new URLSearchParams(query);
    for (const [name, value] of Object.entries(changes)) {
        if (value === null || value === '') next.delete(name);
        else next.set(name, value);
    }
    return next;
}
