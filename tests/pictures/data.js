// Queries of a panel -> Grafana data frames, through Grafana's own transformations, with units, colours and mappings.

import {
  FieldType,
  cacheFieldDisplayNames,
  createTheme,
  getDisplayProcessor,
  standardTransformers,
  standardTransformersRegistry,
  toDataFrame,
  transformDataFrame,
} from '@grafana/data';
import { lastValueFrom } from 'rxjs';

const transformers = new Map(Object.values(standardTransformers).map((each) => [each.id, each]));
standardTransformersRegistry.setInit(() =>
  [...transformers.values()].map((each) => ({ id: each.id, name: each.name, transformation: async () => each }))
);

export const parameters = new URLSearchParams(window.location.search);
export const theme = createTheme({ colors: { mode: parameters.get('theme') ?? 'dark' } });
const server = parameters.get('prometheus');
export const end = Number(parameters.get('end') ?? Date.now() / 1000);
export const start = end - Number(parameters.get('seconds') ?? 900);

function interpolate(text) {
  return text.replace(/\$([a-z]\w*)/g, (whole, name) => parameters.get(name) ?? (name === 'job' || name === 'instance' ? '.+' : whole));
}
export { interpolate };

async function ask(target) {
  const query = interpolate(target.expr);
  const step = Math.max(1, Math.ceil((end - start) / 300));
  const path = target.instant
    ? `query?${new URLSearchParams({ query, time: end })}`
    : `query_range?${new URLSearchParams({ query, start, end, step })}`;
  const reply = await (await fetch(`${server}/api/v1/${path}`)).json();
  if (reply.status !== 'success') {
    throw new Error(`${query}: ${reply.error}`);
  }
  return reply.data.result;
}

function named(format, metric) {
  if (format === '__auto') {
    return JSON.stringify(metric);
  }
  return format.replace(/\{\{(\w+)\}\}/g, (_, label) => metric[label] ?? '');
}

function number(text) {
  return text === 'NaN' ? null : Number(text);
}

function series(target, result) {
  return result.map((each) => {
    const samples = each.values ?? [each.value];
    const frame = toDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: samples.map((sample) => sample[0] * 1000) },
        { name: 'Value', type: FieldType.number, values: samples.map((sample) => number(sample[1])), labels: each.metric },
      ],
    });
    frame.fields[1].config = { displayName: named(target.legendFormat, each.metric) };
    return frame;
  });
}

function rows(target, result, many) {
  const labels = [...new Set(result.flatMap((each) => Object.keys(each.metric)))].sort();
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: result.map((each) => each.value[0] * 1000) },
      ...labels.map((label) => ({
        name: label,
        type: FieldType.string,
        values: result.map((each) => each.metric[label] ?? ''),
      })),
      {
        name: many ? `Value #${target.refId}` : 'Value',
        type: FieldType.number,
        values: result.map((each) => number(each.value[1])),
      },
    ],
  });
}

function set(config, path, value) {
  const keys = path.split('.');
  const last = keys.pop();
  const place = keys.reduce((at, key) => (at[key] ??= {}), config);
  place[last] = value;
}

function matches(matcher, name) {
  if (matcher.id === 'byName') {
    return matcher.options === name;
  }
  const [, pattern] = matcher.options.match(/^\/(.*)\/$/);
  return new RegExp(pattern).test(name);
}

function configure(panel, frames) {
  let index = 0;
  for (const frame of frames) {
    for (const field of frame.fields) {
      const own = field.config ?? {};
      field.config = { ...structuredClone(panel.fieldConfig.defaults), ...structuredClone(own) };
      field.config.custom = structuredClone(panel.fieldConfig.defaults.custom ?? {});
      if (field.type !== FieldType.number) {
        delete field.config.unit;
        delete field.config.color;
      } else {
        field.state = { seriesIndex: index++ };
      }
      const name = field.config.displayName ?? field.name;
      for (const override of panel.fieldConfig.overrides.filter((each) => matches(each.matcher, name))) {
        override.properties.forEach((property) => set(field.config, property.id, structuredClone(property.value)));
      }
      if (field.config.links) {
        field.getLinks = () => field.config.links.map((link) => ({ href: '#', title: link.title, target: '_self', origin: field }));
      }
      field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
    }
  }
  cacheFieldDisplayNames(frames);
  return frames;
}

/** Returns the frames that a panel shows. */
export async function frames(panel) {
  const many = panel.targets.length > 1;
  const answers = await Promise.all(panel.targets.map(ask));
  const found = panel.targets.flatMap((target, at) =>
    target.format === 'table' ? (answers[at].length ? [rows(target, answers[at], many)] : []) : series(target, answers[at])
  );
  const transformations = panel.transformations ?? [];
  const changed = transformations.length ? await lastValueFrom(transformDataFrame(transformations, found)) : found;
  return configure(panel, changed);
}
