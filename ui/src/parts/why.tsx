/** The answer to a question, beside the view that it was asked in. */
import { useEffect, useRef } from 'preact/hooks';
import { get } from '../api';
import { useWatched } from '../cell';
import { useData } from '../data';
import { text } from '../format';
import { askWhy, closeWhy, further, isAnswered, why, type Why } from '../why';
import type { WhyAnswer } from '../types';
import { Command } from './command';
import { ProblemBox } from './problem';

/** Asks; a red thing has one of these. */
export function WhyButton({ question, label }: { question: Why; label?: string }) {
    return (
        <button type="button" class="why" onClick={() => askWhy(question)} aria-label={label ?? question.heading}>
            why?
        </button>
    );
}

/** Pixels up to which the panel takes the whole screen. */
const NARROW = 760;

export function WhyPanel() {
    const question = useWatched(why);
    return question && <Panel key={JSON.stringify(question)} question={question} />;
}

function Panel({ question }: { question: Why }) {
    const heading = useRef<HTMLHeadingElement>(null);
    const key = isAnswered(question) ? JSON.stringify(question.query) : null;
    const { value, problem, reload } = useData(key, (signal) => get<WhyAnswer>('/v1/why', question.query, signal));
    useEffect(() => {
        heading.current?.focus();
        const onKey = (event: KeyboardEvent) => {
            if (event.key === 'Escape' && !document.querySelector('dialog[open]')) closeWhy();
        };
        document.addEventListener('keydown', onKey);
        return () => document.removeEventListener('keydown', onKey);
    }, []);
    return (
        <aside class="panel" aria-labelledby="why-heading">
            <header>
                <h2 id="why-heading" ref={heading} tabIndex={-1}>
                    {question.heading}
                </h2>
                <button type="button" class="quiet" onClick={closeWhy}>
                    Close
                </button>
            </header>
            <div aria-live="polite">
                {problem && <ProblemBox problem={problem} retry={reload} />}
                {key !== null && !value && !problem && <p class="dim">Looking…</p>}
                {value && <Answer answer={value} />}
            </div>
            <h3>Look further</h3>
            <ul class="evidence">
                {further(question).map(({ title, target }) => (
                    <li key={target}>
                        <a href={target} onClick={makeWay}>
                            {title}
                        </a>
                    </li>
                ))}
            </ul>
        </aside>
    );
}

/** Closes the panel where it hides the view that a link leads to. */
function makeWay(): void {
    if (window.innerWidth < NARROW) closeWhy();
}

function Answer({ answer }: { answer: WhyAnswer }) {
    const facts = Object.entries(answer.facts ?? {});
    return (
        <>
            <p class="first">{answer.first}</p>
            {answer.evidence.length > 0 && (
                <>
                    <h3>Evidence</h3>
                    <ul class="evidence">
                        {answer.evidence.map(({ says, source }, at) => (
                            <li key={at}>
                                {says} <span class="source">{source}</span>
                            </li>
                        ))}
                    </ul>
                </>
            )}
            {answer.remedy.length > 0 && (
                <>
                    <h3>What to do</h3>
                    <ol class="remedy">
                        {answer.remedy.map((step, at) => (
                            <li key={at}>{/^\$? ?offramp /.test(step) ? <Command text={step.replace(/^\$ /, '')} /> : step}</li>
                        ))}
                    </ol>
                </>
            )}
            {facts.length > 0 && (
                <details>
                    <summary>Facts</summary>
                    <dl class="facts">
                        {facts.map(([name, value]) => (
                            <div key={name}>
                                <dt>{name}</dt>
                                <dd>{text(value)}</dd>
                            </div>
                        ))}
                    </dl>
                </details>
            )}
        </>
    );
}
