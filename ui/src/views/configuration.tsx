/** The configuration: its file, edited without the risk of locking oneself out; its history; a form for a new site. */
import { useWatched } from '../cell';
import { Tabs } from '../parts/tabs';
import { go, href, place } from '../place';
import { Edit } from './configuration/edit';
import { History } from './configuration/history';
import { AddSite } from './configuration/site';

const TABS = [
    { name: 'edit', title: 'Edit' },
    { name: 'site', title: 'Add a site' },
    { name: 'history', title: 'History' },
] as const;

export function Configuration() {
    const { rest } = useWatched(place);
    const tab = TABS.find(({ name }) => name === rest[0])?.name ?? 'edit';
    return (
        <>
            <h1>Configuration</h1>
            <Tabs label="Configuration" tabs={TABS} current={tab} choose={(name) => go(href('configuration', [name]))} controls="configuration-part" />
            <div id="configuration-part" role="tabpanel" aria-labelledby={`tab-${tab}`}>
                {tab === 'edit' && <Edit />}
                {tab === 'site' && <AddSite />}
                {tab === 'history' && <History />}
            </div>
        </>
    );
}
