"""How it is said that agents did not answer, or refused: words, codes, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import grpc

from pointsman_client.errors import AgentFailedError, PointsmanError, RequestRejectedError
from pointsman_ctl.agents import Agent
from pointsman_ctl.failure import Complaint
from pointsman_ctl.wording import failure_words, is_out_of_reach, printable

Failures = Mapping[Agent, PointsmanError]

OUT_OF_REACH_HINT = "is the agent running, and reachable from here? --agent HOST:PORT asks another address"
AGAIN_HINT = "run it again when all answer, what is done stays done"


def agent_failure_words(failure: PointsmanError) -> str:
    """Say in few words what an agent did instead of answering."""
    if isinstance(failure, RequestRejectedError):
        faults = "; ".join(printable(f"{fault.field} {fault.description}") for fault in failure.violations)
        return faults or printable(failure.message) or failure.status.name
    if isinstance(failure, AgentFailedError):
        if failure.status is grpc.StatusCode.UNIMPLEMENTED:
            return "it does not know that call: no agent, or one that is older than this pointsmanctl"
        return failure_words(failure)
    return printable(str(failure))


def agent_sentence(addr: str, failure: PointsmanError) -> str:
    """The same as one sentence."""
    words = agent_failure_words(failure)
    return f"{addr} refused: {words}" if _is_refusal(failure) else f"{addr} did not answer ({words})"


def to_agent_complaint(agent: Agent, failure: PointsmanError) -> Complaint:
    """Say how one agent failed."""
    servers = {agent.addr: agent_failure_words(failure)}
    return Complaint(_code_of(failure), agent_sentence(agent.addr, failure), _hint_of(failure), servers)


def nobody_answered(failures: Failures) -> Complaint:
    """Say that no agent answered, or that each refused."""
    what = "refused by" if all(map(_is_refusal, failures.values())) else "no agent answered at"
    return Complaint(_common_code(failures), f"{what} {_listed(failures)}", _hints(failures), _servers(failures))


def some_failed(failures: Failures, *, of: Sequence[Agent], is_change: bool) -> Complaint:
    """Name the agents that failed among others that answered; after a change, also those that did it."""
    where, hint = _listed(failures), "what only they know is missing here"
    if is_change:
        where += f"; done at {', '.join(agent.addr for agent in of if agent not in failures)}"
        hint = "" if all(map(_is_refusal, failures.values())) else AGAIN_HINT
    message = f"{len(failures)} of {len(of)} agents failed: {where}"
    return Complaint(_common_code(failures), message, hint, _servers(failures))


def no_agents(without: Sequence[str], *, cluster: str) -> Complaint:
    """Say that there was nobody to ask."""
    where = f" of cluster {cluster}" if cluster else ""
    if without:
        message = f"no broker{where} tells where its agent serves consumer groups: {', '.join(without)}"
        return Complaint("NO_AGENT", message, "set [rpc] in their agents, or name one with --agent HOST:PORT")
    message = f"the name servers know no master{where}"
    return Complaint("NO_AGENT", message, "see `pointsmanctl brokers`; --all asks replicas, too")


def _listed(failures: Failures) -> str:
    return ", ".join(f"{agent.addr} ({agent_failure_words(failure)})" for agent, failure in failures.items())


def _servers(failures: Failures) -> dict[str, str]:
    return {agent.addr: agent_failure_words(failure) for agent, failure in failures.items()}


def _is_refusal(failure: PointsmanError) -> bool:
    return isinstance(failure, RequestRejectedError)


def _code_of(failure: PointsmanError) -> str:
    return failure.details.code or failure.code if isinstance(failure, RequestRejectedError) else failure.code


def _common_code(failures: Failures) -> str:
    codes = {_code_of(failure) for failure in failures.values()}
    return codes.pop() if len(codes) == 1 else "AGENTS_FAILED"


def _hint_of(failure: PointsmanError) -> str:
    return OUT_OF_REACH_HINT if isinstance(failure, AgentFailedError) and is_out_of_reach(failure) else ""


def _hints(failures: Failures) -> str:
    return "; ".join(filter(None, dict.fromkeys(map(_hint_of, failures.values()))))
