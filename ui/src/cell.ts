/** A value that components follow. */
import { useEffect, useReducer } from 'preact/hooks';

export class Watched<T> {
    #value: T;
    readonly #watchers = new Set<() => void>();

    constructor(value: T) {
        this.#value = value;
    }

    get value(): T {
        return this.#value;
    }

    set(value: T): void {
        if (Object.is(value, this.#value)) return;
        this.#value = value;
        for (const watcher of [...this.#watchers]) watcher();
    }

    watch(watcher: () => void): () => void {
        this.#watchers.add(watcher);
        return () => {
            this.#watchers.delete(watcher);
        };
    }
}

export function useWatched<T>(watched: Watched<T>): T {
    const [, redraw] = useReducer((count: number) => count + 1, 0);
    useEffect(() => {
        // The value may have changed between the first drawing and this effect.
        redraw(undefined);
        return watched.watch(() => redraw(undefined));
    }, [watched]);
    return watched.value;
}
