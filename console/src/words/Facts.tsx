import {
  DescriptionList,
  DescriptionListDescription,
  DescriptionListGroup,
  DescriptionListTerm,
} from '@patternfly/react-core';

/** Names and values. What has no value is left out. */
export function Facts({ facts }: { facts: [string, React.ReactNode][] }) {
  return (
    <DescriptionList
      isHorizontal
      isCompact
      className="facts"
      horizontalTermWidthModifier={{ default: '14ch', md: '24ch' }}
    >
      {facts.map(([name, value]) =>
        value === null || value === undefined || value === '' ? null : (
          <DescriptionListGroup key={name}>
            <DescriptionListTerm>{name}</DescriptionListTerm>
            <DescriptionListDescription>{value}</DescriptionListDescription>
          </DescriptionListGroup>
        ),
      )}
    </DescriptionList>
  );
}
