/** The session: login by a link, a token or a password, and its end. */
import { ask, get, Problem, useToken, watchSessionEnd } from './api';
import { Watched } from './cell';
import * as live from './live';
import type { Session } from './types';

export type SessionState =
    | { is: 'unknown' }
    | { is: 'in'; session: Session }
    | { is: 'out'; reason: string | null }
    | { is: 'away'; problem: Problem };

export const session = new Watched<SessionState>({ is: 'unknown' });

function entered(next: Session): void {
    useToken(next.csrf);
    session.set({ is: 'in', session: next });
    live.begin();
}

watchSessionEnd(() => {
    if (session.value.is !== 'in') return;
    live.end();
    session.set({ is: 'out', reason: 'The session has ended. Log in again; what you have typed is still here.' });
});

/** Logs in by the link of `offramp ui`, or goes on with the session that the browser has. */
export async function begin(): Promise<void> {
    const once = /^#once=([\w.~-]+)$/.exec(location.hash)?.[1];
    if (once !== undefined) {
        // The ticket is good once: it has no business in the history.
        window.history.replaceState(null, '', '#/now');
        window.dispatchEvent(new HashChangeEvent('hashchange'));
        const refusal = await login({ once });
        if (refusal === null) return;
    }
    try {
        entered(await get<Session>('/ui/session'));
    } catch (error) {
        if (error instanceof Problem && (error.status === 401 || error.status === 403)) {
            const stale = 'This link was used already, or is older than a minute. Run `offramp ui` again.';
            session.set({ is: 'out', reason: once === undefined ? null : stale });
        } else if (error instanceof Problem) session.set({ is: 'away', problem: error });
    }
}

export type Credentials = { once: string } | { token: string } | { name: string; password: string };

/** Returns the refusal, or null for a login. */
export async function login(credentials: Credentials): Promise<Problem | null> {
    try {
        const { value } = await ask<Session>('/ui/login', { method: 'POST', body: credentials });
        entered(value);
        return null;
    } catch (error) {
        if (error instanceof Problem) return error;
        throw error;
    }
}

export async function logout(): Promise<void> {
    live.end();
    try {
        await ask('/ui/logout', { method: 'POST' });
    } catch {
        // A session that is gone already needs no end.
    }
    session.set({ is: 'out', reason: null });
}
