// One component per kind of panel: Grafana's own where its UI library has one, small stand-ins for bar charts and state
// time lines, which it has not.

import { FieldType, dateTime, formattedValueToString, getFieldColorModeForField } from '@grafana/data';
import { BarGauge, BigValue, TimeSeries } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';

import { end, start, theme } from './data';

const range = { from: dateTime(start * 1000), to: dateTime(end * 1000), raw: { from: 'now-6h', to: 'now' } };

function numbers(frames) {
  return frames.flatMap((frame) => frame.fields.filter((field) => field.type === FieldType.number));
}

function last(field) {
  return [...field.values].reverse().find((value) => value !== null);
}

function shown(field) {
  return { ...field.display(last(field)), title: field.config.displayName ?? field.name };
}

function Nothing({ panel }) {
  const text = panel.fieldConfig.defaults.noValue ?? 'No data';
  return <div style={{ color: theme.colors.text.secondary, textAlign: 'center', padding: 16 }}>{text}</div>;
}

function Stat({ panel, frames, width, height }) {
  const values = numbers(frames).map(shown);
  const across = values.length <= 3 ? values.length : 2;
  const down = Math.ceil(values.length / across);
  const size = { width: width / across - 4, height: height / down - 4 };
  return (
    <div style={{ display: 'flex', flexWrap: 'wrap', gap: 4 }}>
      {values.map((value) => (
        <BigValue
          key={value.title}
          {...size}
          value={values.length === 1 ? { ...value, title: undefined } : value}
          theme={theme}
          colorMode={panel.options.colorMode}
          graphMode="none"
          justifyMode="center"
          textMode={values.length === 1 ? 'value' : 'value_and_name'}
          disableWideLayout
        />
      ))}
    </div>
  );
}

function Bars({ panel, frames, width, height }) {
  const fields = numbers(frames);
  const top = Math.max(panel.fieldConfig.defaults.max ?? 0, ...fields.map(last));
  const each = height / fields.length;
  return fields.map((field) => (
    <div key={field.config.displayName} style={{ height: each }}>
      <BarGauge
        width={width}
        height={Math.min(each - 4, 34)}
        value={shown(field)}
        display={field.display}
        field={{ ...field.config, min: 0, max: top }}
        theme={theme}
        orientation="horizontal"
        displayMode="basic"
        valueDisplayMode="color"
        namePlacement="left"
        showUnfilled
        text={{ titleSize: 13, valueSize: 14 }}
        alignmentFactors={{ title: fields.map((each) => shown(each).title).sort((a, b) => b.length - a.length)[0] + 'MM', text: '000.00 cores' }}
      />
    </div>
  ));
}

function Lines({ panel, frames, width, height }) {
  return (
    <TimeSeries
      frames={frames}
      structureRev={1}
      timeRange={range}
      timeZone="utc"
      width={width}
      height={height}
      legend={{ ...panel.options.legend, displayMode: 'list', calcs: [] }}
      options={{}}
    />
  );
}

function Rows({ panel, frames, width, height }) {
  const sort = panel.options.sortBy ?? [];
  return (
    <TableNG
      data={frames[0]}
      width={width}
      height={height}
      cellHeight="sm"
      initialSortBy={sort}
      timeRange={range}
      getActions={() => []}
      structureRev={1}
      enableVirtualization={false}
    />
  );
}

function color(field) {
  return getFieldColorModeForField(field).getCalculator(field, theme)(0, 0);
}

function Columns({ panel, frames, width, height }) {
  const fields = numbers(frames);
  const names = frames[0].fields.find((field) => field.name === panel.options.xField || field.config.displayName === panel.options.xField);
  const across = panel.options.orientation === 'horizontal';
  const top = Math.max(...fields.flatMap((field) => [...field.values]));
  const text = { fontSize: 11, color: theme.colors.text.secondary, whiteSpace: 'nowrap', overflow: 'hidden', textOverflow: 'ellipsis' };
  const legend = (
    <div style={{ display: 'flex', gap: 16, justifyContent: 'center', height: 22 }}>
      {fields.map((field) => (
        <span key={field.name} style={{ ...text, color: theme.colors.text.primary }}>
          <i style={{ display: 'inline-block', width: 14, height: 4, marginRight: 6, background: color(field) }} />
          {field.config.displayName ?? field.name}
        </span>
      ))}
    </div>
  );
  const bar = (field, at) => {
    const share = `${(100 * (field.values[at] ?? 0)) / top}%`;
    const label = formattedValueToString(field.display(field.values[at]));
    const size = across ? { width: share, height: '100%' } : { height: share, width: '100%' };
    return across ? (
      <div key={field.name} style={{ display: 'flex', alignItems: 'center', gap: 6, flex: 1, minHeight: 0 }}>
        <div style={{ ...size, background: color(field), maxWidth: 'calc(100% - 70px)' }} />
        <span style={text}>{label}</span>
      </div>
    ) : (
      <div key={field.name} style={{ display: 'flex', flexDirection: 'column', justifyContent: 'flex-end', flex: 1, minWidth: 0, alignItems: 'center', height: '100%' }}>
        <span style={{ ...text, fontSize: 10, overflow: 'visible' }}>{label}</span>
        <div style={{ ...size, background: color(field), maxHeight: 'calc(100% - 18px)' }} />
      </div>
    );
  };
  return (
    <div style={{ width, height, display: 'flex', flexDirection: 'column' }}>
      <div style={{ flex: 1, minHeight: 0, display: 'flex', flexDirection: across ? 'column' : 'row', gap: across ? 8 : 14 }}>
        {[...names.values].map((name, at) => (
          <div key={name} style={{ flex: 1, minWidth: 0, minHeight: 0, display: 'flex', flexDirection: across ? 'row' : 'column' }}>
            {across && <div style={{ ...text, width: '38%', paddingRight: 8, textAlign: 'right', alignSelf: 'center' }}>{name}</div>}
            <div style={{ flex: 1, minHeight: 0, display: 'flex', flexDirection: across ? 'column' : 'row', gap: 2, alignItems: across ? 'stretch' : 'flex-end' }}>
              {fields.map((field) => bar(field, at))}
            </div>
            {!across && <div style={{ ...text, textAlign: 'center', paddingTop: 4 }}>{name}</div>}
          </div>
        ))}
      </div>
      {legend}
    </div>
  );
}

function States({ frames, width, height }) {
  const fields = numbers(frames);
  const each = height / fields.length;
  return fields.map((field) => {
    const times = frames.find((frame) => frame.fields.includes(field)).fields[0].values;
    const spans = [];
    field.values.forEach((value, at) => {
      if (!spans.length || spans.at(-1).value !== value) {
        spans.push({ value, from: times[at], to: times[at] });
      }
      spans.at(-1).to = times[at + 1] ?? end * 1000;
    });
    const place = (time) => `${(100 * (time / 1000 - start)) / (end - start)}%`;
    return (
      <div key={field.config.displayName} style={{ display: 'flex', height: each, alignItems: 'center', width }}>
        <div style={{ width: 90, fontSize: 12, textAlign: 'right', paddingRight: 8 }}>{field.config.displayName}</div>
        <div style={{ flex: 1, position: 'relative', height: '85%' }}>
          {spans.map((span) => {
            const value = field.display(span.value);
            const box = { left: place(span.from), width: `calc(${place(span.to)} - ${place(span.from)})` };
            const ground = { background: value.color, color: theme.colors.getContrastText(value.color), fontSize: 11 };
            return (
              <div key={span.from} style={{ position: 'absolute', height: '100%', overflow: 'hidden', paddingLeft: 6, opacity: 0.85, ...box, ...ground }}>
                {value.text}
              </div>
            );
          })}
        </div>
      </div>
    );
  });
}

const kinds = { stat: Stat, bargauge: Bars, timeseries: Lines, table: Rows, barchart: Columns, 'state-timeline': States };

/** Draws a panel's content. */
export function Content(props) {
  const empty = props.frames.length === 0 || props.frames.every((frame) => frame.length === 0);
  const Kind = empty ? Nothing : kinds[props.panel.type];
  return <Kind {...props} />;
}
