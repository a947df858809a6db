/** Data that a component reads, and reads again. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { Problem } from './api';
import { useWatched } from './cell';
import { happened } from './live';

export interface Data<T> {
    value: T | null;
    problem: Problem | null;
    loading: boolean;
    reload: () => void;
}

export interface ReadOptions {
    /** Reads again after an event of these kinds. */
    on?: readonly string[];
    /** Reads again after this time, while the page is seen. */
    everyMs?: number;
}

/**
 * Reads when `key` changes. The value before stays while the next one is on its way, but not beside a refusal of
 * another key.
 */
export function useData<T>(key: string | null, read: (signal: AbortSignal) => Promise<T>, options: ReadOptions = {}): Data<T> {
    const [state, setState] = useState<{ key: string | null; value: T | null; problem: Problem | null; loading: boolean }>({
        key: null,
        value: null,
        problem: null,
        loading: key !== null,
    });
    const [round, setRound] = useState(0);
    const reload = useCallback(() => setRound((round) => round + 1), []);
    const reader = useRef(read);
    reader.current = read;

    const counts = useWatched(happened);
    const moved = (options.on ?? []).reduce((sum, kind) => sum + (counts[kind] ?? 0), 0);

    useEffect(() => {
        if (key === null) return undefined;
        const abort = new AbortController();
        setState((before) => ({ ...before, loading: true }));
        reader.current(abort.signal).then(
            (value) => {
                if (!abort.signal.aborted) setState({ key, value, problem: null, loading: false });
            },
            (error: unknown) => {
                if (abort.signal.aborted) return;
                const problem = error instanceof Problem ? error : new Problem(0, String(error));
                setState((before) => ({ key, value: before.key === key ? before.value : null, problem, loading: false }));
            },
        );
        return () => abort.abort();
    }, [key, round, moved]);

    const { everyMs } = options;
    useEffect(() => {
        if (everyMs === undefined) return undefined;
        const timer = setInterval(() => {
            if (!document.hidden) reload();
        }, everyMs);
        return () => clearInterval(timer);
    }, [everyMs, reload]);

    return { value: state.value, problem: state.problem, loading: state.loading, reload };
}
