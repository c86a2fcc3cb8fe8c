import react from '@vitejs/plugin-react';

export default { plugins: [react()], build: { chunkSizeWarningLimit: 20000 }, define: { 'process.env': {} } };
