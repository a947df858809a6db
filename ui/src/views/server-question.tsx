/** The question before a server is drained, enabled, disabled or gets another weight. */
import { useState } from 'preact/hooks';
import { ask, get, segment, url } from '../api';
import { useData } from '../data';
import { plural } from '../format';
import { refreshStatus } from '../live';
import { Question } from '../parts/dialog';
import { ProblemBox } from '../parts/problem';
import { ReportView } from '../parts/report';
import type { Backend, Report, Server } from '../types';

export type ServerAction = 'drain' | 'enable' | 'disable' | 'weight';

const TITLES: Record<ServerAction, string> = { drain: 'Drain', enable: 'Enable', disable: 'Disable', weight: 'Change the weight of' };
const WORDS: Record<ServerAction, string> = { drain: 'Drain', enable: 'Enable', disable: 'Disable', weight: 'Change' };
const EFFECTS: Record<ServerAction, string> = {
    drain: 'It finishes what it has, and gets nothing new.',
    enable: 'It gets its share again.',
    disable: 'It gets nothing new, and health checks leave it out.',
    weight: 'Its share of new requests and connections changes.',
};

export interface ServerQuestionProps {
    backend: Backend;
    server: Server;
    action: ServerAction;
    close: () => void;
}

export function ServerQuestion({ backend, server, action, close }: ServerQuestionProps) {
    const [weight, setWeight] = useState(server.weight);
    const [persist, setPersist] = useState(false);
    const path = `/v1/backends/${segment(backend.name)}/servers/${segment(server.name)}`;
    const body =
        action === 'weight' ? { weight } : { state: action === 'drain' ? 'drain' : action === 'enable' ? 'enabled' : 'disabled' };
    const valid = Number.isInteger(weight) && weight >= 1 && weight <= 256;
    const plan = useData(valid ? JSON.stringify([path, body, persist]) : null, async (signal) =>
        (await ask<Report>(url(path, { dry_run: true, persist }), { method: 'PATCH', body, signal })).value,
    );
    const run = async () => {
        const { value } = await ask<Report>(url(path, { persist }), { method: 'PATCH', body });
        refreshStatus();
        const { active } = await stillActive(backend.name, server.name);
        return `${WORDS[action]} done: version ${value.version} is in force; ${plural(active, 'request')} on ${server.name}`;
    };
    return (
        <Question title={`${TITLES[action]} ${server.name}?`} action={WORDS[action]} danger={action === 'disable'} ready={valid} run={run} close={close}>
            <p>
                {EFFECTS[action]} It has {plural(server.active, 'request')} now.
            </p>
            {action === 'weight' && (
                <label>
                    Weight, 1 to 256
                    <input type="number" min={1} max={256} step={1} value={weight} onInput={(event) => setWeight(event.currentTarget.valueAsNumber)} />
                </label>
            )}
            <label class="check">
                <input type="checkbox" checked={persist} onChange={() => setPersist(!persist)} /> write it to the configuration file too
            </label>
            {plan.problem && <ProblemBox problem={plan.problem} />}
            {plan.value && !plan.problem && <ReportView report={plan.value} />}
        </Question>
    );
}

async function stillActive(backend: string, server: string): Promise<{ active: number }> {
    const value = await get<Backend>(`/v1/backends/${segment(backend)}`);
    return { active: value.servers.find(({ name }) => name === server)?.active ?? 0 };
}
