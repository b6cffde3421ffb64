import '@patternfly/react-core/dist/styles/base.css';
import './console.css';

import { QueryCache, QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { BrowserRouter } from 'react-router-dom';
import { Failure } from './api/client';
import { home, SITE } from './api/site';
import { App } from './App';
import { beginTheme } from './shell/theme';

beginTheme();

const client: QueryClient = new QueryClient({
  queryCache: new QueryCache({
    onError: (error) => {
      // The session has ended: the page of the login says so.
      if (error instanceof Failure && error.code === 'unauthenticated') client.setQueryData(['session'], null);
    },
  }),
  defaultOptions: {
    // What is not there is not asked for twice.
    queries: { retry: (failures, error) => failures < 1 && !(error instanceof Failure && error.code === 'not-found'), retryDelay: 1000, staleTime: 5_000, refetchOnWindowFocus: true, networkMode: 'always' },
    mutations: { networkMode: 'always' },
  },
});

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <BrowserRouter basename={home(SITE)}>
        <App />
      </BrowserRouter>
    </QueryClientProvider>
  </StrictMode>,
);
