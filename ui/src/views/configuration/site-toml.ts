/** The TOML of a new site, which fits what is there already. */

export interface Site {
    name: string;
    server: string;
    certificate: string;
    path: string;
}

export interface Surroundings {
    /** Listeners that speak HTTP over TLS. */
    listeners: string[];
    /** Set where there are listeners that a site is not for. */
    others: boolean;
    hosts: string[];
    certificates: { names: string[]; acme: boolean; implied: boolean }[];
    /** Set where every host gets a certificate of an authority unless an item covers it. */
    acme: boolean;
}

export interface Fault {
    field: keyof Site;
    says: string;
}

const NAME = /^(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;

export function fault({ name, server, path, certificate }: Site): Fault[] {
    const faults: Fault[] = [];
    const host = name.trim().toLowerCase();
    if (host === '') faults.push({ field: 'name', says: 'The name is missing.' });
    else if (!NAME.test(host)) faults.push({ field: 'name', says: 'A name has letters, digits, hyphens and dots; no https:// and no port.' });
    else if (certificate === 'acme' && host.startsWith('*.')) {
        faults.push({ field: 'name', says: 'A wildcard of Let’s Encrypt needs DNS: write it in the editor, with `dns`.' });
    }
    if (address(server) === null) faults.push({ field: 'server', says: 'A port, an address with a port, or unix:/path' });
    const at = path.trim();
    if (at !== '' && !at.startsWith('/')) faults.push({ field: 'path', says: 'A path begins with /.' });
    return faults;
}

/** The address as the configuration has it; null for none. */
export function address(text: string): string | null {
    const server = text.trim();
    if (/^\d{1,5}$/.test(server)) return Number(server) >= 1 && Number(server) <= 65_535 ? `127.0.0.1:${server}` : null;
    if (/^unix:\/\S+$/.test(server)) return server;
    return /^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5}$/.test(server) ? server : null;
}

/** A basic string of TOML. */
export function quoted(text: string): string {
    const escaped = text.replace(/[\\"]/g, '\\$&').replace(/[\u0000-\u001f\u007f]/g, (control) => `\\u${control.charCodeAt(0).toString(16).padStart(4, '0')}`);
    return `"${escaped}"`;
}

export function toml(site: Site, around: Surroundings): string {
    const name = site.name.trim().toLowerCase();
    const path = site.path.trim();
    const lines = certificate(site, name, around);
    if (lines.length > 0) lines.push('');
    lines.push('[[route]]');
    if (around.others && around.listeners[0] !== undefined) lines.push(`listener = ${listed(around.listeners)}`);
    lines.push(`host = ${quoted(name)}`);
    if (path !== '') lines.push(`path = ${quoted(path)}`);
    lines.push(`server = ${quoted(address(site.server) ?? '')}`);
    return `${lines.join('\n')}\n`;
}

function listed(names: readonly string[]): string {
    return names.length === 1 ? quoted(names[0] as string) : `[${names.map(quoted).join(', ')}]`;
}

/** The item of the certificate, if what is there does not give the name one of this kind. */
function certificate(site: Site, name: string, around: Surroundings): string[] {
    const local = site.certificate === 'local';
    const written = around.certificates.filter(({ implied }) => !implied);
    const covering = written.find(({ names }) => names.some((pattern) => covers(pattern, name)));
    if (covering) return covering.acme === !local ? [] : item(name, local);
    if (around.acme) return local ? item(name, local) : [];
    // Without an item every host has a certificate of the local CA: the first item must not take it from the others.
    if (written.length === 0) {
        if (local) return [];
        const others = around.hosts.filter((host) => host !== name);
        const kept = others.length > 0 ? ['[[certificate]]', 'local = true', `names = [${others.map(quoted).join(', ')}]`, ''] : [];
        return [...kept, ...item(name, local)];
    }
    return item(name, local);
}

function item(name: string, local: boolean): string[] {
    return ['[[certificate]]', local ? 'local = true' : 'acme = "letsencrypt"', `names = [${quoted(name)}]`];
}

export function covers(pattern: string, name: string): boolean {
    if (pattern === name) return true;
    if (!pattern.startsWith('*.')) return false;
    const dot = name.indexOf('.');
    return dot > 0 && name.slice(dot + 1) === pattern.slice(2);
}
