/**
 * Event streams (`text/event-stream`), read by `fetch`: unlike `EventSource` it shows the refusal, and a stream can be
 * left and taken up again after its last event.
 */
import { Problem, send } from './api';
import { Watched } from './cell';
import { EventParser } from './event-parser';

export type StreamState = 'connecting' | 'live' | 'away' | 'paused' | 'closed';

export interface StreamOptions {
    /** Leaves the stream while nobody sees the page. */
    pausesHidden: boolean;
    /** Goes on after the last event. */
    resumes?: boolean;
}

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 30_000;
/** Offramp sends a comment every 15 seconds at least. */
const SILENCE_MS = 45_000;

export class Stream {
    readonly state = new Watched<StreamState>('closed');
    readonly problem = new Watched<Problem | null>(null);
    #abort: AbortController | null = null;
    #timer: ReturnType<typeof setTimeout> | undefined;
    #tries = 0;
    #last = '';
    #open = false;

    constructor(
        private readonly address: string,
        private readonly onEvent: (name: string, data: unknown) => void,
        private readonly options: StreamOptions,
    ) {}

    open(): void {
        if (this.#open) return;
        this.#open = true;
        document.addEventListener('visibilitychange', this.#visibility);
        this.#begin();
    }

    close(): void {
        this.#open = false;
        document.removeEventListener('visibilitychange', this.#visibility);
        this.#leave();
        this.state.set('closed');
    }

    readonly #visibility = (): void => {
        if (!this.options.pausesHidden) return;
        if (document.hidden) {
            this.#leave();
            this.state.set('paused');
        } else {
            this.#tries = 0;
            this.#begin();
        }
    };

    #leave(): void {
        clearTimeout(this.#timer);
        this.#abort?.abort();
        this.#abort = null;
    }

    #begin(): void {
        this.#leave();
        if (!this.#open) return;
        if (this.options.pausesHidden && document.hidden) {
            this.state.set('paused');
            return;
        }
        if (this.state.value !== 'away') this.state.set('connecting');
        const abort = new AbortController();
        this.#abort = abort;
        this.#read(abort).then(
            () => this.#again(abort, null),
            (error: unknown) => this.#again(abort, error),
        );
    }

    #again(abort: AbortController, error: unknown): void {
        if (this.#abort !== abort) return;
        this.#abort = null;
        // An end in order, as every ten minutes, is no fault: the next stream follows at once.
        const inOrder = error === null && this.#tries === 0;
        if (!inOrder) {
            this.problem.set(error instanceof Problem ? error : new Problem(0, 'The connection to Offramp broke.'));
            this.state.set('away');
        }
        const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(this.#tries, 10));
        this.#tries += 1;
        this.#timer = setTimeout(() => this.#begin(), wait * (0.75 + Math.random() / 2));
    }

    async #read(abort: AbortController): Promise<void> {
        const headers: Record<string, string> = { Accept: 'text/event-stream' };
        if (this.options.resumes && this.#last !== '') headers['Last-Event-ID'] = this.#last;
        const response = await send(this.address, { headers, signal: abort.signal });
        const reader = response.body?.getReader();
        if (!reader) return;
        const decoder = new TextDecoder();
        const parser = new EventParser((name, data, id) => {
            this.#tries = 0;
            if (id !== null) this.#last = id;
            this.onEvent(name, data);
        });
        this.state.set('live');
        this.problem.set(null);
        for (;;) {
            const silence = setTimeout(() => void reader.cancel(), SILENCE_MS);
            const { done, value } = await reader.read().finally(() => clearTimeout(silence));
            if (done) return;
            this.#tries = 0;
            parser.push(decoder.decode(value, { stream: true }));
        }
    }
}
