/** The text that is being edited. It outlives the view, a session that ends, and a change that was taken back. */
import { ask } from '../../api';
import { Watched } from '../../cell';
import { status } from '../../live';
import { announce } from '../../parts/announce';
import type { ConfigFile } from '../../types';

export interface Draft {
    path: string | null;
    /** The text in force that the draft began with. */
    base: string;
    text: string;
    version: number;
    /** The tag of that version: a change of somebody else is not overwritten. */
    tag: string | null;
    /** Set where the file on disk is another one than what is in force. */
    differs: boolean;
    /** The version that this text became, while it waits to be confirmed. */
    tried: number | null;
    /** A later version of somebody else, while this text is edited. */
    newer: number | null;
}

export const draft = new Watched<Draft | null>(null);

async function readFile(signal?: AbortSignal): Promise<Draft> {
    const { value, tag } = await ask<ConfigFile>('/v1/config/file', signal ? { signal } : {});
    const { path, text, version, differs } = value;
    return { path, base: text, text, version, tag, differs, tried: null, newer: null };
}

/** The file in force, unless a draft is there already. */
export async function begin(signal?: AbortSignal): Promise<Draft> {
    const now = draft.value ?? (await readFile(signal));
    draft.set(draft.value ?? now);
    return now;
}

export function edit(text: string): void {
    if (draft.value) draft.set({ ...draft.value, text });
}

/** Goes on with the text upon the version that is in force now. */
export async function takeUp(): Promise<void> {
    const now = await readFile();
    if (draft.value) draft.set({ ...now, text: draft.value.text });
}

/** Drops the text for the one that is in force. */
export async function drop(): Promise<void> {
    draft.set(await readFile());
}

/** Goes on with the file in force, which has the text that was kept; what was typed since then stays. */
async function settle(kept: string): Promise<void> {
    const now = await readFile();
    const text = draft.value?.text;
    draft.set(text === undefined || text === kept ? now : { ...now, text });
}

export function tried(version: number): void {
    if (draft.value) draft.set({ ...draft.value, tried: version });
}

export function edited(now: Draft): boolean {
    return now.text !== now.base;
}

/** The parameters by which relative paths in the draft start where those of the file do. */
export function origin({ path }: Draft): { name?: string; folder?: string } {
    if (path === null || !path.startsWith('/')) return {};
    const slash = path.lastIndexOf('/');
    return { name: path, folder: path.slice(0, slash) || '/' };
}

/** Follows what becomes of a text that was applied, and of the version that the draft stands upon. */
status.watch(() => {
    const [now, in_force] = [draft.value, status.value?.config];
    if (!now || !in_force || in_force.confirm_until !== null) return;
    if (now.tried !== null) {
        if (in_force.version < now.tried) return;
        const kept = in_force.version === now.tried;
        draft.set({ ...now, tried: null });
        announce(kept ? 'The change is kept' : 'The change was taken back; your text is still here');
        void (kept ? settle(now.text) : takeUp()).catch(() => announce('The file in force could not be read again'));
    } else if (now.version < in_force.version) {
        if (edited(now)) draft.set({ ...now, newer: in_force.version });
        else void drop().catch(() => announce('The file in force could not be read again'));
    }
});

window.addEventListener('beforeunload', (event) => {
    if (draft.value && edited(draft.value)) event.preventDefault();
});
