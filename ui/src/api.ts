/** Requests to the admin API. Every refusal becomes a `Problem` with a sentence for people. */

/** A refusal (RFC 9457), or no answer at all (status 0). */
export class Problem extends Error {
    constructor(
        readonly status: number,
        detail: string,
        readonly members: Record<string, unknown> = {},
    ) {
        super(detail);
    }
}

export interface Answer<T> {
    value: T;
    /** The tag of the configuration in force, for a change that depends on it. */
    tag: string | null;
}

export interface Ask {
    method?: string;
    /** A string is sent as TOML, anything else as JSON. */
    body?: unknown;
    tag?: string | null;
    signal?: AbortSignal;
    headers?: Record<string, string>;
}

export type Query = Record<string, string | number | boolean | string[] | null | undefined>;

let csrf = '';
let onSessionEnd: () => void = () => {};

export function useToken(token: string): void {
    csrf = token;
}

/** Calls `end` when the API says that nobody is logged in. */
export function watchSessionEnd(end: () => void): void {
    onSessionEnd = end;
}

/** A path with its query; empty values are left out, and `true` is a name alone. */
export function url(path: string, query: Query = {}): string {
    const parts: string[] = [];
    for (const [name, value] of Object.entries(query)) {
        for (const one of Array.isArray(value) ? value : [value]) {
            if (one === true) parts.push(encodeURIComponent(name));
            else if (one !== false && one !== null && one !== undefined && one !== '') {
                parts.push(`${encodeURIComponent(name)}=${encodeURIComponent(one)}`);
            }
        }
    }
    return parts.length === 0 ? path : `${path}?${parts.join('&')}`;
}

/** One segment of a path. */
export const segment = encodeURIComponent;

export async function send(path: string, options: Ask = {}): Promise<Response> {
    const method = options.method ?? 'GET';
    const headers: Record<string, string> = { ...options.headers };
    if (method !== 'GET' && method !== 'HEAD') headers['X-Offramp-CSRF'] = csrf;
    if (options.tag) headers['If-Match'] = options.tag;
    const init: RequestInit = { method, headers, credentials: 'same-origin', cache: 'no-store', redirect: 'error' };
    if (options.signal) init.signal = options.signal;
    if (typeof options.body === 'string') {
        headers['Content-Type'] = 'application/toml';
        init.body = options.body;
    } else if (options.body !== undefined) {
        headers['Content-Type'] = 'application/json';
        init.body = JSON.stringify(options.body);
    }
    let response: Response;
    try {
        response = await fetch(path, init);
    } catch (error) {
        if (options.signal?.aborted) throw error;
        throw new Problem(0, 'Offramp does not answer.');
    }
    if (!response.ok) throw await problemOf(response, path);
    return response;
}

export async function ask<T>(path: string, options: Ask = {}): Promise<Answer<T>> {
    const response = await send(path, options);
    const tag = response.headers.get('ETag');
    const text = await response.text();
    try {
        return { value: (text === '' ? null : JSON.parse(text)) as T, tag };
    } catch {
        throw new Problem(response.status, 'The answer is not JSON: something between this page and Offramp changes it.');
    }
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
    const options: Ask = signal ? { signal } : {};
    return (await ask<T>(url(path, query), options)).value;
}

async function problemOf(response: Response, path: string): Promise<Problem> {
    let members: Record<string, unknown> = {};
    let detail = '';
    try {
        const body: unknown = await response.json();
        if (body !== null && typeof body === 'object') members = body as Record<string, unknown>;
        if (typeof members.detail === 'string') detail = members.detail;
    } catch {
        // A refusal without a body for people gets a sentence below.
    }
    if (response.status === 401 && !path.startsWith('/ui/')) onSessionEnd();
    const after = Number(response.headers.get('Retry-After'));
    if (after > 0) members.retry_after = after;
    return new Problem(response.status, detail || `Offramp refuses this with status ${response.status}.`, members);
}
