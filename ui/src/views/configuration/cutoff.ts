/** Edits after which this page would not be reached any more. */
import type { Report, Session } from '../../types';

/** Keys that decide where the admin interface listens and who may use it. */
const ADMIN = /^(admin|state_dir|user)\b/;

export interface PageAddress {
    port: string;
    protocol: string;
}

/** The reasons why the page would lose its way to Offramp; none for most edits. */
export function cutsOff(report: Report, session: Session, page: PageAddress): string[] {
    const reasons: string[] = [];
    const keys = report.needs_an_upgrade.filter((key) => ADMIN.test(key));
    if (keys.length > 0) {
        const elsewhere = session.interface === 'tcp' ? 'open this page at another address or with another login' : 'run `offramp ui` again';
        reasons.push(`From the next upgrade or start on, the admin interface that this page talks to is another one (${keys.join(', ')}): you may have to ${elsewhere}.`);
    }
    // A page that is itself behind a route of Offramp has the port of one of its listeners.
    const port = page.port || (page.protocol === 'https:' ? '443' : '80');
    const { closes } = report.touched;
    const gone = Array.isArray(closes) ? closes.filter((address) => address.endsWith(`:${port}`)) : [];
    if (gone.length > 0) reasons.push(`This page comes through ${gone.join(', ')}, where Offramp would stop listening. You could not keep the edit here, so it would be taken back.`);
    return reasons;
}
