/** A new site by four fields. It writes TOML into the editor, where it is checked, planned and applied like any edit. */
import { useState } from 'preact/hooks';
import { get, Problem } from '../../api';
import { useData } from '../../data';
import { ProblemBox } from '../../parts/problem';
import { go, href } from '../../place';
import type { Item, Listener } from '../../types';
import { begin, edit, type Draft } from './draft';
import { fault, toml, type Site, type Surroundings } from './site-toml';

export function AddSite() {
    const around = useData('site', surroundings, { on: ['change'] });
    const [site, setSite] = useState<Site>({ name: '', server: '', certificate: 'local', path: '' });
    const [shown, setShown] = useState(false);
    const [problem, setProblem] = useState<Problem | null>(null);
    const change = (name: keyof Site) => (event: Event) => setSite({ ...site, [name]: (event.currentTarget as HTMLInputElement).value });
    const wrong = fault(site);
    const submit = async (event: Event) => {
        event.preventDefault();
        setShown(true);
        if (wrong.length > 0 || !around.value) return;
        let now: Draft;
        try {
            now = await begin();
        } catch (error) {
            setProblem(error instanceof Problem ? error : new Problem(0, String(error)));
            return;
        }
        const gap = now.text === '' || now.text.endsWith('\n') ? '' : '\n';
        edit(`${now.text}${gap}\n${toml(site, around.value)}`);
        go(href('configuration', ['edit']));
    };
    if (around.problem) return <ProblemBox problem={around.problem} retry={around.reload} />;
    const faultOf = (field: keyof Site) => (shown ? wrong.find((one) => one.field === field)?.says : undefined);
    return (
        <form class="site" onSubmit={(event) => void submit(event)} noValidate>
            <Field
                name="name"
                label="Name"
                hint="What people type into the browser: app.example.org"
                value={site.name}
                onInput={change('name')}
                fault={faultOf('name')}
            />
            <Field
                name="server"
                label="Where the application listens"
                hint="A port of this machine (3000), an address (10.0.0.7:3000) or a socket (unix:/run/app.sock)"
                value={site.server}
                onInput={change('server')}
                fault={faultOf('server')}
            />
            <fieldset>
                <legend>Certificate</legend>
                <label class="check">
                    <input type="radio" name="certificate" value="local" checked={site.certificate === 'local'} onChange={change('certificate')} /> from the
                    local CA: for names at home; browsers must trust it once
                </label>
                <label class="check">
                    <input type="radio" name="certificate" value="acme" checked={site.certificate === 'acme'} onChange={change('certificate')} /> from Let’s
                    Encrypt: for a public name that leads to this machine
                </label>
            </fieldset>
            <Field name="path" label="Path" hint="Only below this path: /shop. Empty for all" value={site.path} onInput={change('path')} fault={faultOf('path')} />
            {around.value && wrong.length === 0 && (
                <pre tabIndex={0} aria-label="What will be written">
                    {toml(site, around.value)}
                </pre>
            )}
            {problem && <ProblemBox problem={problem} />}
            <p class="buttons">
                <button type="submit" class="primary" disabled={!around.value}>
                    Write it into the editor
                </button>
                <span class="dim">Nothing is in force before you apply it there.</span>
            </p>
        </form>
    );
}

interface FieldProps {
    name: string;
    label: string;
    hint: string;
    value: string;
    onInput: (event: Event) => void;
    fault: string | undefined;
}

function Field({ name, label, hint, value, onInput, fault }: FieldProps) {
    return (
        <div class="field">
            <label for={`site-${name}`}>{label}</label>
            <input
                id={`site-${name}`}
                name={name}
                value={value}
                onInput={onInput}
                aria-describedby={`site-${name}-hint`}
                aria-invalid={fault !== undefined}
                spellcheck={false}
                autocapitalize="none"
                autocomplete="off"
            />
            <p id={`site-${name}-hint`} class={fault ? 'bad' : 'dim'}>
                {fault ?? hint}
            </p>
        </div>
    );
}

async function surroundings(signal: AbortSignal): Promise<Surroundings> {
    const [{ listeners }, { routes }, { items }, config] = await Promise.all([
        get<{ listeners: Listener[] }>('/v1/listeners', {}, signal),
        get<{ routes: Item[] }>('/v1/routes', {}, signal),
        get<{ items: Item[] }>('/v1/certificates', {}, signal),
        get<{ settings: Record<string, { value: unknown }> }>('/v1/config', {}, signal),
    ]);
    const list = (value: unknown): string[] => (typeof value === 'string' ? [value] : Array.isArray(value) ? value.map(String) : []);
    return {
        listeners: listeners.filter(({ config }) => config?.mode === 'http' && config.tls !== false).map(({ name }) => name),
        others: listeners.filter(({ config }) => config?.mode !== 'http' || config.tls === false).length > 0,
        hosts: [...new Set(routes.flatMap(({ config }) => list(config?.host)))],
        certificates: items.map(({ config, origin }) => ({
            names: list(config?.names),
            acme: config?.acme !== undefined,
            implied: origin === 'implied',
        })),
        acme: config.settings['tls.certificates']?.value === 'acme',
    };
}
