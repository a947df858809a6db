/** Errors and warnings of the text, each a way to its place. */
import type { Problem } from '../../api';
import { plural } from '../../format';
import type { Checked, Finding } from '../../types';

export interface FindingsProps {
    checked: Checked | null;
    problem: Problem | null;
    goTo: (line: number, column: number | null) => void;
}

export function Findings({ checked, problem, goTo }: FindingsProps) {
    return (
        <div id="findings" class="findings">
            <p role="status" class={checked && !checked.ok ? 'bad' : 'dim'}>
                {problem ? `It could not be checked: ${problem.message}` : checked ? countOf(checked) : 'Checking…'}
            </p>
            <List findings={checked?.errors ?? []} kind="bad" goTo={goTo} />
            <List findings={checked?.warnings ?? []} kind="warn" goTo={goTo} />
        </div>
    );
}

function List({ findings, kind, goTo }: { findings: readonly Finding[]; kind: string; goTo: FindingsProps['goTo'] }) {
    if (findings.length === 0) return null;
    return (
        <ul class={kind}>
            {findings.map(({ line, column, message, key }, at) => (
                <li key={at}>
                    {line !== null && (
                        <button type="button" class="cell" onClick={() => goTo(line, column)}>
                            line {line}
                            {column !== null && `:${column}`}
                        </button>
                    )}{' '}
                    {key && <code>{key}</code>} {message}
                </li>
            ))}
        </ul>
    );
}

function countOf(checked: Checked): string {
    const { errors, warnings } = checked;
    if (errors.length === 0 && warnings.length === 0) return 'No error.';
    return [errors.length > 0 && plural(errors.length, 'error'), warnings.length > 0 && plural(warnings.length, 'warning')].filter(Boolean).join(', ');
}
