/** Questions before something is done. */
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { Problem } from '../api';
import { announce } from './announce';
import { ProblemBox } from './problem';

export interface QuestionProps {
    title: string;
    children?: ComponentChildren;
    /** The word on the button that does it. */
    action: string;
    danger?: boolean;
    ready?: boolean;
    /** Does it, and returns words about what was done. */
    run: () => Promise<string>;
    close: () => void;
}

export function Question({ title, children, action, danger, ready = true, run, close }: QuestionProps) {
    const box = useRef<HTMLDialogElement>(null);
    const id = useId();
    const [problem, setProblem] = useState<Problem | null>(null);
    const [busy, setBusy] = useState(false);
    useEffect(() => {
        const opened = box.current;
        opened?.showModal();
        // Closing returns the focus to where the question was asked; removing alone would not.
        return () => opened?.close();
    }, []);
    const submit = async (event: Event) => {
        event.preventDefault();
        if (busy || !ready) return;
        setBusy(true);
        setProblem(null);
        try {
            announce(await run());
            close();
        } catch (error) {
            setProblem(error instanceof Problem ? error : new Problem(0, String(error)));
            setBusy(false);
        }
    };
    return (
        <dialog ref={box} aria-labelledby={id} onCancel={(event) => (event.preventDefault(), close())}>
            <form onSubmit={submit}>
                <h2 id={id}>{title}</h2>
                {children}
                {problem && <ProblemBox problem={problem} />}
                <p class="buttons">
                    <button type="submit" class={danger ? 'danger' : 'primary'} disabled={busy || !ready}>
                        {busy ? 'Working…' : action}
                    </button>
                    <button type="button" onClick={close}>
                        Cancel
                    </button>
                </p>
            </form>
        </dialog>
    );
}
