/* pg/node/charges.h - calls in the quals of a scan cost what the rows that reach them cost. */
#ifndef LLM_PG_NODE_CHARGES_H
#define LLM_PG_NODE_CHARGES_H

/* Look at every scan that is planned. */
extern void llm_charges_init(void);

#endif
