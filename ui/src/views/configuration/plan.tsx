/** A plan: what changes, which connections it touches, and if the page itself would be lost. */
import { useMemo } from 'preact/hooks';
import { ReportView } from '../../parts/report';
import { difference } from './difference';
import type { Draft } from './draft';
import type { Planned } from './edit';

export interface PlanProps {
    plan: Planned;
    draft: Draft;
    confirm: string;
    setConfirm: (time: string) => void;
    apply: () => void;
    ready: boolean;
}

export function Plan({ plan, draft, confirm, setConfirm, apply, ready }: PlanProps) {
    return (
        <section class="plan">
            {plan.cuts.length > 0 && (
                <div class="problem" role="alert">
                    <p>
                        <b>This edit would cut off this page.</b>
                    </p>
                    <ul>
                        {plan.cuts.map((reason, at) => (
                            <li key={at}>{reason}</li>
                        ))}
                    </ul>
                </div>
            )}
            <ReportView report={plan.report} />
            <details>
                <summary>The lines of the file that differ</summary>
                <Lines before={draft.base} after={plan.text} />
            </details>
            <p class="buttons">
                <button type="button" class={plan.cuts.length > 0 ? 'danger' : 'primary'} disabled={!ready} onClick={apply}>
                    Apply
                </button>
                <label>
                    and take it back unless it is kept within
                    <select value={confirm} onChange={(event) => setConfirm(event.currentTarget.value)}>
                        <option value="30s">30 seconds</option>
                        <option value="60s">60 seconds</option>
                        <option value="5m">5 minutes</option>
                    </select>
                </label>
            </p>
        </section>
    );
}

function Lines({ before, after }: { before: string; after: string }) {
    const lines = useMemo(() => difference(before, after), [before, after]);
    const kinds = { '+': 'added', '-': 'removed', ' ': 'same', '…': 'dim' } as const;
    return (
        <pre class="lines" tabIndex={0} aria-label="The lines that differ">
            {lines.map(({ sign, text }, at) => (
                <span key={at} class={kinds[sign]}>
                    {sign} {text}
                    {'\n'}
                </span>
            ))}
        </pre>
    );
}
