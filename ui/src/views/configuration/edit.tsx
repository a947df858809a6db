/** Edit, check, plan, apply: nothing is in force before its consequences were shown. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { ask, Problem, url } from '../../api';
import { useWatched } from '../../cell';
import { useData } from '../../data';
import { refreshStatus, status } from '../../live';
import { announce } from '../../parts/announce';
import { ProblemBox } from '../../parts/problem';
import { session } from '../../session';
import type { Checked, Report } from '../../types';
import { begin, draft, drop, edit, edited, origin, tried, type Draft } from './draft';
import { Editor, type EditorHandle } from './editor';
import { Findings } from './findings';
import { Plan } from './plan';
import { Conflict } from './conflict';
import { cutsOff } from './cutoff';

/** From the last key to the check. */
const PAUSE_MS = 400;

export function Edit() {
    const now = useWatched(draft);
    const first = useData('draft', begin);
    if (now) return <Editing now={now} />;
    return first.problem ? <ProblemBox problem={first.problem} retry={first.reload} /> : <p class="dim">Reading the file…</p>;
}

export interface Planned {
    text: string;
    persist: boolean;
    report: Report;
    cuts: string[];
}

function Editing({ now }: { now: Draft }) {
    const checked = useChecked(now);
    const [persist, setPersist] = useState(now.path !== null);
    const [confirm, setConfirm] = useState('60s');
    const [plan, setPlan] = useState<Planned | null>(null);
    const [problem, setProblem] = useState<Problem | null>(null);
    const [busy, setBusy] = useState(false);
    const handle = useRef<EditorHandle>(null);
    const heading = useRef<HTMLHeadingElement>(null);
    const waits = (useWatched(status)?.config.confirm_until ?? null) !== null;
    const current = plan !== null && plan.text === now.text && plan.persist === persist ? plan : null;

    const attempt = async (work: () => Promise<void>) => {
        setBusy(true);
        setProblem(null);
        try {
            await work();
        } catch (error) {
            setProblem(error instanceof Problem ? error : new Problem(0, String(error)));
        }
        setBusy(false);
    };
    const makePlan = () =>
        attempt(async () => {
            setPlan(await planned(now, persist));
            heading.current?.focus();
        });
    const apply = () =>
        attempt(async () => {
            const target = url('/v1/config', { ...origin(now), confirm, persist });
            const { value } = await ask<Report>(target, { method: 'PUT', body: now.text, tag: now.tag });
            setPlan(null);
            tried(value.version);
            refreshStatus();
            announce(`Version ${value.version} is in force, and is taken back unless you keep it`);
            window.scrollTo(0, 0);
        });
    const wrong = checked.value?.ok === false;
    return (
        <>
            <p class="dim">
                {now.path ?? 'There is no file: the configuration came from the command line.'} · version {now.version}
                {now.differs && ' · the file on disk is another one: changes were made that were not written to it'}
            </p>
            <Editor
                value={now.text}
                onInput={edit}
                errors={checked.value?.errors ?? []}
                warnings={checked.value?.warnings ?? []}
                describedBy="findings"
                handle={handle}
            />
            <Findings checked={checked.value} problem={checked.problem} goTo={(line, column) => handle.current?.goTo(line, column)} />
            {now.newer !== null && !problem && <Conflict version={now.newer} difference={null} done={() => setProblem(null)} />}
            {problem?.status === 409 && 'difference' in problem.members ? (
                <Conflict version={Number(problem.members.version)} difference={problem.members.difference} done={() => setProblem(null)} />
            ) : (
                problem && <ProblemBox problem={problem} />
            )}
            <p class="buttons">
                <button type="button" class={current ? undefined : 'primary'} disabled={busy || wrong || !edited(now) || waits} onClick={() => void makePlan()}>
                    Plan
                </button>
                <button type="button" disabled={busy || !edited(now)} onClick={() => void attempt(drop)}>
                    Drop the edit
                </button>
                {now.path !== null && (
                    <label class="check">
                        <input type="checkbox" checked={persist} onChange={() => setPersist(!persist)} /> write it to the file when it is kept
                    </label>
                )}
                {!edited(now) && <span class="dim">Nothing is edited.</span>}
            </p>
            <h2 ref={heading} tabIndex={-1} class={current ? undefined : 'hidden'}>
                What this would change
            </h2>
            {current && (
                <Plan plan={current} draft={now} confirm={confirm} setConfirm={setConfirm} apply={() => void apply()} ready={!busy && !waits && !wrong} />
            )}
        </>
    );
}

async function planned(now: Draft, persist: boolean): Promise<Planned> {
    const target = url('/v1/config', { ...origin(now), dry_run: true, persist });
    const { value: report } = await ask<Report>(target, { method: 'PUT', body: now.text, tag: now.tag });
    const who = session.value;
    const cuts = who.is === 'in' ? cutsOff(report, who.session, location) : [];
    return { text: now.text, persist, report, cuts };
}

/** The findings about the text, once nobody has typed for a moment. */
function useChecked(now: Draft) {
    const [settled, setSettled] = useState(now.text);
    useEffect(() => {
        const timer = setTimeout(() => setSettled(now.text), PAUSE_MS);
        return () => clearTimeout(timer);
    }, [now.text]);
    return useData(settled, async (signal) => (await ask<Checked>('/v1/check', { method: 'POST', body: settled, signal })).value);
}
