/** The consequences of a change, before it is made and after. */
import { plural, text } from '../format';
import type { Report } from '../types';

export function ReportView({ report }: { report: Report }) {
    const { changes, touched, warnings, needs_an_upgrade: later, new_certificates: certificates } = report;
    return (
        <div class="report">
            {changes.length === 0 ? (
                <p>Nothing changes{later.length > 0 ? ' now' : ''}.</p>
            ) : (
                <ul class="difference" aria-label="What changes">
                    {changes.map((line, at) => (
                        <li key={at} class={kind(line)}>
                            {line}
                        </li>
                    ))}
                </ul>
            )}
            <p>
                <b>{plural(touched.connections, 'open connection')}</b> of {touched.open} {touched.connections === 1 ? 'is' : 'are'} on what
                changes; {touched.open === 0 ? 'none is open' : 'they stay open'}.
                {some(touched.opens) && <> Opens {listed(touched.opens)}.</>}
                {some(touched.closes) && <> Stops listening on {listed(touched.closes)}.</>}
                {certificates > 0 && <> {plural(certificates, 'certificate')} will be new.</>}
            </p>
            {later.length > 0 && (
                <p class="warning">
                    Takes effect at the next upgrade or start: {later.join(', ')}.
                </p>
            )}
            {warnings.map((warning, at) => (
                <p key={at} class="warning">
                    {text(warning)}
                </p>
            ))}
        </div>
    );
}

function some(value: string[] | number | null | undefined): boolean {
    return Array.isArray(value) ? value.length > 0 : (value ?? 0) > 0;
}

function listed(value: string[] | number): string {
    return Array.isArray(value) ? value.join(', ') : plural(value, 'address', 'addresses');
}

/** The sign in front of a line of a difference. */
export function kind(line: string): string {
    if (/: added$/.test(line)) return 'added';
    if (/: removed$/.test(line)) return 'removed';
    return 'altered';
}
