/** Questions behind red things; the panel answers the latest one. */
import type { Query } from './api';
import { Watched } from './cell';
import { href } from './place';

export interface Why {
    /** The question as the panel's heading has it. */
    heading: string;
    /** Parameters of `GET /v1/why`. */
    query: Query;
}

export const why = new Watched<Why | null>(null);

let asker: HTMLElement | null = null;

export function askWhy(question: Why): void {
    asker = document.activeElement instanceof HTMLElement ? document.activeElement : null;
    why.set(question);
}

/** Closes the panel; the focus returns to where the question was asked. */
export function closeWhy(): void {
    why.set(null);
    asker?.focus();
    asker = null;
}

/** Whether `GET /v1/why` answers this; for the others the panel leads on to what shows more. */
export function isAnswered({ query }: Why): boolean {
    return query.about !== 'handshake' || query.cause !== undefined;
}

/** Views that show more about what a question is about. */
export function further({ query }: Why): { title: string; target: string }[] {
    const text = (name: string) => (typeof query[name] === 'string' ? query[name] : null);
    const to = (title: string, view: string, filter: Record<string, string>) => ({ title, target: href(view, [], new URLSearchParams(filter)) });
    const [client, host, backend] = [text('client'), text('host'), text('backend')];
    if (client) {
        return [
            to('its open connections', 'connections', { client }),
            to('its requests as they end', 'requests', { client }),
            to('the pages that it asks for', 'traffic', { what: 'pages', client }),
        ];
    }
    if (query.about === 'no-certificate' && host) return [to('the certificate', 'certificates', { find: host })];
    if (query.about === 'slow') return [to('the slowest pages', 'traffic', { what: 'slow' })];
    const errors = to('errors of the last day', 'traffic', { what: 'errors' });
    return backend ? [to('the backend', 'backends', { find: backend }), errors] : [errors];
}

const HANDSHAKE = /^(no_common_|handshake_|client_certificate_|no_certificate$|unknown_name$|client_hello_|not_tls$|plain_http$)/;
const SERVER =
    /^(connect_|server_|all_servers_failed$|no_server_alive$|bad_response$|queue_)/;

/** The question about a limit, which has the name of its cause. */
export function aboutLimit(limit: string): Why {
    return { heading: `Why does ${limit.replace(/_/g, ' ')} refuse?`, query: { about: 'slow', limit } };
}

/** The question about a cause of the figures. */
export function aboutCause(cause: string): Why {
    const heading = `Why ${cause.replace(/_/g, ' ')}?`;
    if (cause === 'no_route') return { heading, query: { about: 'not-routed', cause } };
    if (HANDSHAKE.test(cause)) return { heading, query: { about: 'handshake', cause } };
    if (SERVER.test(cause)) return { heading, query: { about: '502', cause } };
    return { heading, query: { about: 'request', cause } };
}
