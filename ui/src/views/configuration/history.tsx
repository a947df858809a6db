/** The changes that were made and those that were refused; each version is one click away. */
import { useState } from 'preact/hooks';
import { ask, get, url } from '../../api';
import { useWatched } from '../../cell';
import { useData } from '../../data';
import { clock } from '../../format';
import { refreshStatus, status } from '../../live';
import { Question } from '../../parts/dialog';
import { ProblemBox } from '../../parts/problem';
import { kind, ReportView } from '../../parts/report';
import type { Change, Refusal, Report } from '../../types';

const ON = { on: ['change', 'refused', 'confirm'] };

/** A way back is a change like others: it goes back itself unless somebody keeps it. */
const CONFIRM = '60s';

/** Offramp remembers the configurations of so many versions. */
const REMEMBERED = 10;

interface Changes {
    version: number;
    changes: Change[];
}

export function History() {
    const changes = useData('changes', (signal) => get<Changes>('/v1/changes', {}, signal), ON);
    const refused = useData('refused', (signal) => get<{ refused: Refusal[] }>('/v1/refused', {}, signal), ON);
    const [target, setTarget] = useState<number | null>(null);
    const waits = (useWatched(status)?.config.confirm_until ?? null) !== null;
    const problem = changes.problem ?? refused.problem;
    const now = changes.value?.version ?? 1;
    const canGoTo = (version: number) => !waits && version < now && version > now - REMEMBERED && version >= 1;
    /** The version before the oldest change that is listed. */
    const start = (changes.value?.changes.at(-1)?.version ?? now) - 1;
    return (
        <>
            {problem && <ProblemBox problem={problem} retry={() => (changes.reload(), refused.reload())} />}
            {changes.value && (
                <>
                    <p>Version {changes.value.version} is in force.</p>
                    <ol class="history">
                        {changes.value.changes.map((change) => (
                            <li key={change.version}>
                                <Entry change={change} />
                                {canGoTo(change.version) && <GoBack to={change.version} choose={setTarget} />}
                            </li>
                        ))}
                        {canGoTo(start) && (
                            <li>
                                <p>
                                    <b>Version {start}</b>
                                    {start === 1 && ', the start'}
                                </p>
                                <GoBack to={start} choose={setTarget} />
                            </li>
                        )}
                    </ol>
                </>
            )}
            <h2>Refused</h2>
            {refused.value?.refused.length === 0 && <p class="dim">No change was refused.</p>}
            <ol class="history">
                {refused.value?.refused.map(({ how, at, by, reasons, omitted }, index) => (
                    <li key={index}>
                        <p>
                            <b>{how}</b> at {clock(at)} by {by}
                        </p>
                        <ul class="bad">
                            {reasons.map((reason, at) => (
                                <li key={at}>{reason}</li>
                            ))}
                            {omitted > 0 && <li>and {omitted} more</li>}
                        </ul>
                    </li>
                ))}
            </ol>
            {target !== null && <Rollback to={target} close={() => setTarget(null)} />}
        </>
    );
}

function GoBack({ to, choose }: { to: number; choose: (version: number) => void }) {
    return (
        <button type="button" onClick={() => choose(to)}>
            Go back to version {to}…
        </button>
    );
}

function Entry({ change }: { change: Change }) {
    const { version, how, at, by, changes, omitted } = change;
    return (
        <>
            <p>
                <b>Version {version}</b> {how} at {clock(at)} by {by}
            </p>
            <ul class="difference" aria-label={`What version ${version} has changed`}>
                {changes.map((line, at) => (
                    <li key={at} class={kind(line)}>
                        {line}
                    </li>
                ))}
                {omitted > 0 && <li>and {omitted} more</li>}
            </ul>
        </>
    );
}

function Rollback({ to, close }: { to: number; close: () => void }) {
    const plan = useData(String(to), async (signal) => (await ask<Report>(url('/v1/rollback', { to, dry_run: true }), { method: 'POST', signal })).value);
    const run = async () => {
        const { value } = await ask<Report>(url('/v1/rollback', { to, confirm: CONFIRM }), { method: 'POST' });
        refreshStatus();
        const words = value.confirm_until === null ? '' : ', and is taken back unless you keep it';
        return `Version ${value.version} is in force, as version ${to} was${words}`;
    };
    return (
        <Question title={`Go back to version ${to}?`} action="Go back" ready={plan.value !== null} run={run} close={close}>
            {plan.problem && <ProblemBox problem={plan.problem} />}
            {!plan.value && !plan.problem && <p class="dim">Planning…</p>}
            {plan.value && <ReportView report={plan.value} />}
            <p class="dim">
                It is taken back after a minute unless you keep it. The version in force now stays in this list, one click away.
            </p>
        </Question>
    );
}
