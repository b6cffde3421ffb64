import { Card, CardBody, CardTitle, PageSection, Skeleton, Title } from '@patternfly/react-core';
import { useEffect } from 'react';
import { Failure } from '../api/client';
import { FailureNote } from '../words/FailureNote';

/** A page below the masthead: its title, what can be done here, and what it shows. */
export function PageFrame({
  title,
  above,
  actions,
  children,
}: {
  title: string;
  above?: React.ReactNode;
  actions?: React.ReactNode;
  children: React.ReactNode;
}) {
  useEffect(() => {
    document.title = `${title} · farside`;
  }, [title]);
  return (
    <PageSection isWidthLimited={false} className="page-body">
      {above && <div className="page-above">{above}</div>}
      <div className="page-head">
        <Title headingLevel="h1" size="2xl">
          {title}
        </Title>
        {actions && <div className="page-actions">{actions}</div>}
      </div>
      {children}
    </PageSection>
  );
}

export function Panel({
  title,
  actions,
  children,
  className,
}: {
  title: string;
  actions?: React.ReactNode;
  children: React.ReactNode;
  className?: string;
}) {
  return (
    <Card className={`panel ${className ?? ''}`} isCompact component="section" aria-label={title}>
      <CardTitle component="h2">
        <span className="panel-head">
          <span>{title}</span>
          {actions && <span className="panel-actions">{actions}</span>}
        </span>
      </CardTitle>
      <CardBody>{children}</CardBody>
    </Card>
  );
}

/** What is asked for, once it is there; until then room of the same size. */
export function Loaded<T>({
  query,
  lines = 3,
  children,
}: {
  query: { data: T | undefined; error: unknown };
  lines?: number;
  children: (data: T) => React.ReactNode;
}) {
  // What was there and is there no more is not shown as if it were.
  const isGone = query.error instanceof Failure && query.error.code === 'not-found';
  if (query.data !== undefined && !isGone) return <>{children(query.data)}</>;
  if (query.error) return <FailureNote error={query.error} />;
  return (
    <div aria-busy="true" aria-label="Loading">
      {Array.from({ length: lines }, (_, line) => (
        <Skeleton key={line} className="gap-below" screenreaderText="Loading" />
      ))}
    </div>
  );
}
