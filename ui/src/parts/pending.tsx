/** A change that is taken back by itself unless somebody confirms it: on every view until it is decided. */
import { useEffect, useState } from 'preact/hooks';
import { ask, Problem } from '../api';
import { useWatched } from '../cell';
import { clock, plural } from '../format';
import { refreshStatus, status } from '../live';
import type { Report } from '../types';
import { draft } from '../views/configuration/draft';
import { announce } from './announce';
import { ProblemBox } from './problem';

export function Pending() {
    const until = useWatched(status)?.config.confirm_until ?? null;
    return until === null ? null : <Countdown key={until} until={until} />;
}

function Countdown({ until }: { until: string }) {
    const end = Date.parse(until);
    const [left, setLeft] = useState(() => secondsTo(end));
    const [problem, setProblem] = useState<Problem | null>(null);
    useEffect(() => {
        const timer = setInterval(() => {
            const now = secondsTo(end);
            setLeft(now);
            if (now <= 0) refreshStatus();
        }, 1000);
        return () => clearInterval(timer);
    }, [end]);
    const decide = async (path: string, done: (report: Report) => string) => {
        setProblem(null);
        // The draft tells what becomes of its own text, and the event of that may come before the answer here.
        const isOfDraft = draft.value !== null && draft.value.tried !== null;
        try {
            const { value } = await ask<Report>(path, { method: 'POST' });
            if (!isOfDraft) announce(done(value));
        } catch (error) {
            if (!(error instanceof Problem)) throw error;
            setProblem(error);
        }
        refreshStatus();
    };
    return (
        <section class="pending" aria-labelledby="pending-heading">
            <h2 id="pending-heading">A change waits for you</h2>
            <p>
                It is taken back at {clock(until)}
                <span aria-hidden="true">
                    , in <b class="countdown">{plural(left, 'second')}</b>
                </span>
                , unless you keep it. If this page had lost its way to Offramp, you would not need to do anything.
            </p>
            {problem && <ProblemBox problem={problem} />}
            <p class="buttons">
                <button type="button" class="primary" onClick={() => void decide('/v1/confirm', ({ version }) => `Version ${version} stays in force`)}>
                    Keep
                </button>
                <button
                    type="button"
                    onClick={() => void decide('/v1/rollback', ({ version }) => `Taken back; version ${version} is in force`)}
                >
                    Go back
                </button>
            </p>
        </section>
    );
}

function secondsTo(end: number): number {
    return Math.max(0, Math.ceil((end - Date.now()) / 1000));
}
