{{/*
The agent as a native sidecar: an init container that stays. It starts before the broker and stops after it.

    initContainers:
      {{- include "pointsman.agent.container" (dict "image" "pointsman-agent:0.2.0" "host" "..." "port" 6379
          "configMap" "orders-agent" "tlsSecret" "orders-agent-tls" "nameServers" "pointsman-namesrv.pointsman.svc") | nindent 6 }}
    volumes:
      {{- include "pointsman.agent.volumes" (dict "configMap" "orders-agent" "tlsSecret" "orders-agent-tls") | nindent 6 }}

host: a name or address of this pod that clients reach; $(POD_NAME), $(POD_IP) and $(POD_NAMESPACE) stand for those of the pod.
port: where the broker listens. configMap: has agent.toml. nameServers: a DNS name, each address of which is a name server; it
must be in their certificate. tlsSecret: of type kubernetes.io/tls with ca.crt; without it the agent speaks plaintext.
pullPolicy, resources: as of any container; may be left out.
*/}}
{{- define "pointsman.agent.container" -}}
- name: agent
  image: {{ .image }}
  {{- with .pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  # A native sidecar: started before the broker, stopped after it.
  restartPolicy: Always
  args: ["--config", "/etc/pointsman/agent.toml"]
  env:
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: AGENT_BROKER__NAME, value: $(POD_NAME)}
    - {name: AGENT_BROKER__ADDR, value: {{ printf "%s:%v" .host .port | quote }}}
    - {name: AGENT_BROKER__AGENT_ADDR, value: {{ printf "%s:9880" .host | quote }}}
    - {name: AGENT_NAME_SERVERS__DNS, value: {{ printf "%s:9876" .nameServers | quote }}}
    # A refused connection to loopback is strong evidence that the broker is down.
    - {name: AGENT_PROBE__TARGET, value: {{ printf "127.0.0.1:%v" .port | quote }}}
    - {name: AGENT_OFFSETS__PATH, value: /var/lib/pointsman/offsets.db}
    - {name: AGENT_RPC__LISTEN, value: "0.0.0.0:9880"}
    - {name: AGENT_MONITORING__LISTEN, value: "0.0.0.0:9881"}
    {{- if .tlsSecret }}
    - {name: AGENT_TLS__CERTIFICATE, value: /etc/pointsman-tls/tls.crt}
    - {name: AGENT_TLS__KEY, value: /etc/pointsman-tls/tls.key}
    - {name: AGENT_TLS__CLIENT_CA, value: /etc/pointsman-tls/ca.crt}
    - {name: AGENT_CREDENTIALS__CERTIFICATE, value: /etc/pointsman-tls/tls.crt}
    - {name: AGENT_CREDENTIALS__KEY, value: /etc/pointsman-tls/tls.key}
    - {name: AGENT_CREDENTIALS__CA, value: /etc/pointsman-tls/ca.crt}
    # The agent connects to the addresses of the DNS name.
    - {name: AGENT_CREDENTIALS__SERVER_NAME, value: {{ .nameServers }}}
    {{- else }}
    - {name: AGENT_TLS__PLAINTEXT_BEYOND_LOOPBACK, value: "true"}
    {{- end }}
  ports:
    - {name: agent, containerPort: 9880}
    - {name: metrics, containerPort: 9881}
  # The broker starts when this has passed. Not /healthz: an agent that no name server knows must not stop the broker.
  startupProbe:
    tcpSocket: {port: metrics}
    periodSeconds: 1
    failureThreshold: 60
  livenessProbe:
    tcpSocket: {port: metrics}
    periodSeconds: 10
  {{- with .resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- include "pointsman.containerSecurity" . | nindent 2 }}
  volumeMounts:
    - {name: agent, mountPath: /etc/pointsman, readOnly: true}
    - {name: agent-state, mountPath: /var/lib/pointsman}
    {{- if .tlsSecret }}
    - {name: agent-tls, mountPath: /etc/pointsman-tls, readOnly: true}
    {{- end }}
{{- end }}

{{- define "pointsman.agent.volumes" -}}
- name: agent
  configMap: {name: {{ .configMap }}}
# Offsets that were read while the master was down.
- name: agent-state
  emptyDir: {}
{{- with .tlsSecret }}
- name: agent-tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}
